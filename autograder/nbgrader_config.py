"""nbgrader's settings for the course; `autograder course` copies this file into a course folder.

nbgrader reads it from the folder it is run in. What the course needs stands in
`autograder.nbgrader_course.configure`, so that an update of the course updates it here too.
"""

import os
import tempfile

from autograder.nbgrader_course import configure

c = get_config()  # type: ignore[name-defined]  # noqa: F821  nbgrader provides it

# True: the course's own engine grades, and learners' code runs apart from it.
# False: nbgrader runs the notebooks itself, with its trust in what they do.
ENGINE = True

configure(c, engine=ENGINE)
c.CourseDirectory.course_id = "practical-jax"

# Notebooks that are graded here are nobody's progress.
os.environ["COURSE_PROGRESS"] = os.path.join(tempfile.gettempdir(), "graded-progress.json")
