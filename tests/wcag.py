"""Contrast as WCAG 2.2 defines it: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""

import numpy as np
from matplotlib.colors import to_rgb

TEXT, GRAPHICS = 4.5, 3.0
"""The least contrast of level AA: of text (1.4.3), of graphics that are needed (1.4.11)."""


def linear(color):
    """Linear RGB of an sRGB colour."""
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """The contrast ratio of two colours, 1 to 21."""
    light, dark = sorted((linear(c) @ [0.2126, 0.7152, 0.0722] for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
