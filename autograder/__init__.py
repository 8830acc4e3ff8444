"""The instructor's engine: builds chapters, checks their exercises, grades submissions."""
