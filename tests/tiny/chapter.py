# %% [markdown]
# # 09 · Tiny
#
# A chapter on which the author's tools are tested.

# %% tags=["setup"]
import matplotlib.pyplot as plt
import numpy as np

from helpers import check, quiz

# %% [markdown]
# ## 9.1 Means
#
# The mean of the numbers 1, 2 and 6 is 3.

# %% tags=["given"]
# quote: helpers.exercises.tiny.total

# %% tags=["claim"]
assert total([1, 2, 6]) / 3 == 3
print(f"{total([1, 2, 6]) / 3:.4f}")

# %% tags=["figure"]
fig, ax = plt.subplots()
ax.plot(np.arange(4), np.arange(4) ** 2)
ax.set(title="Squares grow faster than numbers", xlabel="number", ylabel="square")
plt.show()

# %% tags=["claim", "nbval-ignore-output"]
import time

assert time.perf_counter() > 0
print(f"{time.perf_counter():.9f} s")

# %% [markdown] exercise="9.1"
# Write `safe_mean(values, mask)`. Both are arrays of shape (n,); it returns a number.


# %% tags=["starter"] exercise="9.1"
def safe_mean(values, mask):
    """Mean of the selected values; 0 when there are none."""
    ### BEGIN SOLUTION
    count = max(int(mask.sum()), 1)
    return float(total(values * mask) / count)
    ### END SOLUTION


# %% [markdown]
# ## 9.2 Bounds
#
# A look-up says no, as §9.1 did not.

# %% [markdown] exercise="9.2"
# Write `at(values, index)`. `values` is an array of shape (n,); it returns a number.


# %% tags=["starter"] exercise="9.2"
def at(values, index):
    """The element at a place that is not negative."""
    ### BEGIN SOLUTION
    if index < 0:
        raise IndexError(index)
    return int(values[index])
    ### END SOLUTION


# %% tags=["quiz"] question="9.a"
