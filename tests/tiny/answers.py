# %% 9.1 right: with NumPy's own mean
def safe_mean(values, mask):
    return float(np.mean(values[mask])) if mask.any() else 0.0


# %% 9.1 right: with a weighted average
def safe_mean(values, mask):
    return float(np.average(values, weights=mask)) if np.any(mask) else 0.0


# %% 9.1 wrong: divides by all
# The denominator counts what is not selected too.
# see: 9.1
def safe_mean(values, mask):
    return float(total(values * mask) / len(values))


# %% 9.1 wrong: divides by nothing
# An empty selection has no count to divide by.
# see: 9.1
def safe_mean(values, mask):
    return float(total(values * mask) / mask.sum())


# %% 9.1 wrong: ignores the mask
# The mask is there to be used.
# see: 9.1
def safe_mean(values, mask):
    return float(np.mean(values))


# %% 9.1 wrong: sums
# A mean is divided by the count.
# see: 9.1
def safe_mean(values, mask):
    return float(total(values * mask))


# %% 9.1 wrong: selects the others
# The mask says which to keep.
# see: 9.1
def safe_mean(values, mask):
    return float(total(values * ~mask) / max(int((~mask).sum()), 1))


# %% 9.2 right: with a clear message
def at(values, index):
    if index < 0:
        raise IndexError(f"{index} is negative")
    return int(values[index])


# %% 9.2 right: by iterating
def at(values, index):
    for place, value in enumerate(values):
        if place == index:
            return int(value)
    raise IndexError(index)


# %% 9.2 wrong: counts from the end
# Python takes a negative index as a place from the end.
# see: 9.2
def at(values, index):
    return int(values[index])


# %% 9.2 wrong: another error
# The caller catches IndexError.
# see: 9.2
def at(values, index):
    if index < 0:
        raise ValueError(index)
    return int(values[index])


# %% 9.2 wrong: returns None
# A refusal is an error, not a value.
# see: 9.2
def at(values, index):
    return int(values[index]) if index >= 0 else None


# %% 9.2 wrong: off by one
# Places start at zero.
# see: 9.2
def at(values, index):
    return int(values[index - 1])


# %% 9.2 wrong: clips
# Clipping hides the mistake.
# see: 9.2
def at(values, index):
    return int(values[max(index, 0)])
