"""Right and wrong answers to the exercises of chapter 02; parsed, never imported."""
# ruff: noqa


# %% 2.1 right: unit vectors first, by safe_norm
def cosine(a, b):
    def unit(x):
        length = safe_norm(x)
        return jnp.where(length > 0, x / jnp.where(length > 0, length, 1.0), 0.0)

    return unit(a) @ unit(b)


# %% 2.1 right: both branches by hand, jitted
@jax.jit
def cosine(a, b):
    squares = jnp.sum(a * a), jnp.sum(b * b)
    fine = (squares[0] > 0) & (squares[1] > 0)
    left, right = (jnp.where(fine, each, 1.0) for each in squares)
    return jnp.where(fine, jnp.sum(a * b) * jax.lax.rsqrt(left) * jax.lax.rsqrt(right), 0.0)


# %% 2.1 right: one branch alone, by cond
def cosine(a, b):
    def quotient(a, b):
        return jnp.vdot(a, b) / jnp.linalg.norm(a) / jnp.linalg.norm(b)

    fine = jnp.any(a != 0) & jnp.any(b != 0)
    return jax.lax.cond(fine, quotient, lambda a, b: 0.0, a, b)


# %% 2.1 right: other vectors in place of the zero ones
def cosine(a, b):
    fine = (a != 0).any() & (b != 0).any()
    a, b = (jnp.where(fine, each, 1.0) for each in (a, b))
    return jnp.where(fine, (a / jnp.linalg.norm(a)).dot(b / jnp.linalg.norm(b)), 0.0)


# %% 2.1 wrong: the textbook formula
# For a zero vector it is 0 / 0. The lengths need a guard, and so does the quotient.
# see: 2.5
def cosine(a, b):
    return a @ b / (jnp.linalg.norm(a) * jnp.linalg.norm(b))


# %% 2.1 wrong: one where, around the quotient
# The value is right, but reverse mode still goes through the quotient and the lengths: it multiplies
# the 0 that the `where` sends back by their infinite slopes. `nan_to_num` is the same `where`. Give
# both of them a harmless number to work on as well.
# see: 2.3
def cosine(a, b):
    product = jnp.linalg.norm(a) * jnp.linalg.norm(b)
    return jnp.where(product > 0, a @ b / product, 0.0)


# %% 2.1 wrong: adds 1e-8 to the denominator
# For two vectors of length 1e-8 the product of their lengths is 1e-16, and 1e-8 beside it is
# everything: the cosine comes out as almost 0. And the slope of `norm` at the zero vector is still
# NaN.
# see: 2.5
def cosine(a, b):
    return a @ b / (jnp.linalg.norm(a) * jnp.linalg.norm(b) + 1e-8)


# %% 2.1 wrong: adds 1e-8 under each root
# Nothing is infinite any more, but every vector has become longer by something like 1e-4: short
# ones are no longer compared at all. A guard for one point must leave the other points alone.
# see: 2.5
def cosine(a, b):
    return a @ b / (jnp.sqrt(a @ a + 1e-8) * jnp.sqrt(b @ b + 1e-8))


# %% 2.1 wrong: clamps the denominator, as PyTorch does
# `max(‖a‖·‖b‖, 1e-8)` spoils all pairs of short vectors, and where a vector is zero the quotient has
# the slope b / 1e-8: finite, and a hundred million times too steep.
# see: 2.5
def cosine(a, b):
    return a @ b / jnp.maximum(safe_norm(a) * safe_norm(b), 1e-8)


# %% 2.1 wrong: takes short vectors for zero vectors
# A threshold of 1e-6 on the lengths guards the zero vector and a whole ball around it. Only zero is
# zero.
# see: 2.3
def cosine(a, b):
    long_a, long_b = safe_norm(a), safe_norm(b)
    fine = (long_a > 1e-6) & (long_b > 1e-6)
    return jnp.where(fine, a @ b / jnp.where(fine, long_a * long_b, 1.0), 0.0)


# %% 2.1 wrong: divides the zero vector by one
# The value is 0, but x / 1 at the zero vector has a slope of 1: half of the gradient is a unit vector
# where 0 was asked for. Select the 0 as well.
# see: 2.3
def cosine(a, b):
    def unit(x):
        length = safe_norm(x)
        return x / jnp.where(length > 0, length, 1.0)

    return unit(a) @ unit(b)


# %% 2.1 wrong: divides by one where a length is zero
# The value is 0, for a @ b is 0. But its slope with respect to the zero vector is the other vector
# over 1, where 0 was asked for. The 0 must be selected as well, so that no slope goes that way.
# see: 2.3
def cosine(a, b):
    product = safe_norm(a) * safe_norm(b)
    return (a @ b) / jnp.where(product > 0, product, 1.0)


# %% 2.1 wrong: one root for both lengths
# 1/√y is 1e16 at y = 1e-32, which float32 holds; its slope there is 1e48, which it does not. So the
# values of short vectors are right, and their gradients are not finite. Take a root of each length.
# see: 2.2
def cosine(a, b):
    squares = jnp.sum(a * a) * jnp.sum(b * b)
    both = squares > 0
    return jnp.where(both, (a @ b) * jax.lax.rsqrt(jnp.where(both, squares, 1.0)), 0.0)


# %% 2.1 wrong: computes in NumPy
# NumPy needs numbers, and under jit, vmap and grad there are none yet: JAX is tracing. Use jnp.
# see: 2.4
def cosine(a, b):
    product = np.linalg.norm(a) * np.linalg.norm(b)
    return np.where(product > 0, np.dot(a, b) / np.where(product > 0, product, 1.0), 0.0)


# %% 2.1 wrong: a Python if
# Under jit and vmap there are no numbers that Python could look at. Use `jnp.where`, twice.
# see: 2.4
def cosine(a, b):
    if jnp.all(a == 0) or jnp.all(b == 0):
        return 0.0
    return a @ b / (jnp.linalg.norm(a) * jnp.linalg.norm(b))


# %% 2.1 wrong: two zero vectors count as equal
# The cosine is 0 where a vector is zero, also where both are.
# see: 2.5
def cosine(a, b):
    long_a, long_b = safe_norm(a), safe_norm(b)
    fine = (long_a > 0) & (long_b > 0)
    value = jnp.where(fine, a @ b / jnp.where(fine, long_a * long_b, 1.0), 0.0)
    return jnp.where((long_a == 0) & (long_b == 0), 1.0, value)


# %% 2.1 wrong: the lengths are constants
# `stop_gradient` keeps the NaN out of the gradient, and half of the gradient with it: a longer
# vector has the same cosine, so the slope along the vector must be 0.
# see: 2.3
def cosine(a, b):
    product = jax.lax.stop_gradient(safe_norm(a) * safe_norm(b))
    fine = product > 0
    return jnp.where(fine, a @ b / jnp.where(fine, product, 1.0), 0.0)


# %% 2.1 wrong: divides by one length only
# That is how far b reaches along a. Divide by the length of b as well.
# see: 2.5
def cosine(a, b):
    long = safe_norm(a)
    return jnp.where(long > 0, a @ b / jnp.where(long > 0, long, 1.0), 0.0)


# %% 2.1 wrong: puts ones in place of zeros
# Each component that is 0 becomes 1, also in vectors that are not zero. Ask for the vector, not for
# its components.
# see: 2.3
def cosine(a, b):
    fine = jnp.any(a != 0) & jnp.any(b != 0)
    a, b = (jnp.where(each == 0, 1.0, each) for each in (a, b))
    return jnp.where(fine, a @ b / (jnp.linalg.norm(a) * jnp.linalg.norm(b)), 0.0)


# %% 2.2 right: shifted, as in the chapter
def masked_logsumexp(x, mask):
    kept = mask & (x > -jnp.inf)
    x = jnp.where(kept, x, 0.0)
    top = jax.lax.stop_gradient(jnp.max(x, axis=1, where=kept, initial=jnp.finfo(x.dtype).min))
    exps = jnp.where(kept, jnp.exp(jnp.where(kept, x - top[:, None], 0.0)), 0.0)
    total = exps.sum(axis=1)
    fine = total > 0
    return jnp.where(fine, top + jnp.log(jnp.where(fine, total, 1.0)), -jnp.inf)


# %% 2.2 right: jax.nn.logsumexp on rows that have something
def masked_logsumexp(x, mask):
    kept = mask & ~jnp.isneginf(x)
    some = kept.any(axis=-1)
    safe = kept | ~some[:, None]
    x = jnp.where(kept, x, 0.0)
    return jnp.where(some, jax.nn.logsumexp(x, axis=-1, where=safe), -jnp.inf)


# %% 2.2 right: a rule of its own
@jax.custom_jvp
def masked_logsumexp(x, mask):
    return jax.scipy.special.logsumexp(jnp.where(mask, x, -jnp.inf), axis=1)


@masked_logsumexp.defjvp
def _(primals, tangents):
    x, mask = primals
    kept = mask & (x > -jnp.inf)
    share = jax.nn.softmax(jnp.where(kept, x, jnp.finfo(x.dtype).min), axis=1)
    moved = jnp.where(kept, share * jnp.where(kept, tangents[0], 0.0), 0.0)
    return masked_logsumexp(x, mask), jnp.sum(moved, axis=1)


# %% 2.2 right: one row at a time
@jax.jit
def masked_logsumexp(x, mask):
    def row(x, mask):
        kept = mask & (x > -jnp.inf)
        some = jnp.any(kept)
        top = jax.lax.stop_gradient(jnp.max(jnp.where(kept, x, -jnp.inf)))
        top = jnp.where(some, top, 0.0)
        weights = jnp.where(kept, jnp.exp(jnp.where(kept, x, top) - top), 0.0)
        return jnp.where(some, jnp.log(jnp.where(some, weights.sum(), 1.0)) + top, -jnp.inf)

    return jax.vmap(row)(x, mask)


# %% 2.2 wrong: no shift
# exp overflows from 89 up and is 0 below −104: take out the largest number first.
# see: 2.6
def masked_logsumexp(x, mask):
    mask = mask & (x > -jnp.inf)
    total = jnp.sum(jnp.where(mask, jnp.exp(jnp.where(mask, x, 0.0)), 0.0), axis=1)
    return jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1.0)), -jnp.inf)


# %% 2.2 wrong: the maximum of the whole row
# A masked number can be the largest, ∞ or NaN, and then everything else is measured against it.
# Take the maximum over what is selected.
# see: 2.6
def masked_logsumexp(x, mask):
    top = jax.lax.stop_gradient(jnp.max(x, axis=1, keepdims=True))
    kept = mask & (x > -jnp.inf)
    total = jnp.sum(jnp.where(kept, jnp.exp(jnp.where(kept, x - top, 0.0)), 0.0), axis=1)
    fine = total > 0
    return jnp.where(fine, top[:, 0] + jnp.log(jnp.where(fine, total, 1.0)), -jnp.inf)


# %% 2.2 wrong: the smallest float in place of what is masked
# Where nothing is selected, all numbers are equal to `finfo.min`, and an empty row looks like a
# uniform one: a huge negative number and a gradient that is not 0. It also lies above a −∞ that is
# selected.
# see: 2.6
def masked_logsumexp(x, mask):
    return jax.nn.logsumexp(jnp.where(mask, x, jnp.finfo(x.dtype).min), axis=1)


# %% 2.2 wrong: −1e30 in place of what is masked
# A selected number may lie below it, and then what was masked is the largest of the row. float32
# goes down to −3.4e38; no number is small enough but the one that is taken out.
# see: 2.6
def masked_logsumexp(x, mask):
    some = jnp.any(mask & (x > -jnp.inf), axis=1)
    filled = jnp.where(mask & some[:, None], x, -1e30)
    return jnp.where(some, jax.nn.logsumexp(filled, axis=1), -jnp.inf)


# %% 2.2 wrong: leaves a selected −∞ to logsumexp
# `where=mask` takes care of what is masked, and nearly of empty rows: their derivative in forward mode
# is NaN. And where all that is selected is −∞, so is its largest number, and −∞ − (−∞) is NaN: the
# gradient of the row is gone. Such a row needs a number that can be subtracted.
# see: 2.6
def masked_logsumexp(x, mask):
    return jax.nn.logsumexp(x, axis=1, where=mask)


# %% 2.2 wrong: −∞ in place of what is masked
# The two `where` save a row in which nothing is selected. In a row of which all selected numbers are
# −∞ the largest number is −∞, and −∞ − (−∞) is NaN, for which the gradient has no guard. Find a number
# that can be subtracted there.
# see: 2.6
def masked_logsumexp(x, mask):
    x = jnp.where(mask, x, -jnp.inf)
    top = jnp.max(x, axis=1, keepdims=True)
    value = top[:, 0] + jnp.log(jnp.sum(jnp.exp(x - top), axis=1))
    return jnp.where(jnp.any(x > -jnp.inf, axis=1), value, -jnp.inf)


# %% 2.2 wrong: multiplies the exponentials by the mask
# 0 times NaN is NaN, and 0 times ∞ too: whatever the masked numbers hold is in the sum. Select with
# `where`, before exp and behind it. (XLA sometimes turns a product with a mask into a selection; it
# does not promise to.)
# see: 2.7
def masked_logsumexp(x, mask):
    kept = mask & (x > -jnp.inf)
    top = jax.lax.stop_gradient(jnp.max(x, axis=1, where=kept, initial=-1e30))
    total = jnp.sum(jnp.exp(x - top[:, None]) * mask, axis=1)
    fine = kept.any(axis=1)
    return jnp.where(fine, top + jnp.log(jnp.where(fine, total, 1.0)), -jnp.inf)


# %% 2.2 wrong: exp(x − logsumexp) as the rule
# On paper that is the softmax. Where the numbers are huge, float32 has no digits left for the log of
# the sum behind the maximum: two equal numbers get a share of 1 each. A chain of `logaddexp` does the
# same. Divide by the sum.
# see: 2.6
@jax.custom_jvp
def masked_logsumexp(x, mask):
    return jax.scipy.special.logsumexp(jnp.where(mask, x, -jnp.inf), axis=1)


@masked_logsumexp.defjvp
def _(primals, tangents):
    x, mask = primals
    value = masked_logsumexp(x, mask)
    kept = mask & (value > -jnp.inf)[:, None]
    share = jnp.where(kept, jnp.exp(jnp.where(kept, x - value[:, None], 0.0)), 0.0)
    return value, jnp.sum(jnp.where(kept, share * tangents[0], 0.0), axis=1)


# %% 2.2 wrong: multiplies the numbers by the mask
# What is masked becomes 0, and exp(0) is 1: every masked number is counted as a logit of 0.
# see: 2.6
def masked_logsumexp(x, mask):
    return jax.nn.logsumexp(x * mask, axis=1)


# %% 2.2 wrong: 0 for an empty row
# The sum over nothing is 0, and the logarithm of 0 is −∞. A 0 would be a row with one logit of 0.
# see: 2.6
def masked_logsumexp(x, mask):
    kept = mask & (x > -jnp.inf)
    some = kept.any(axis=1)
    x = jnp.where(kept, x, 0.0)
    value = jax.nn.logsumexp(x, axis=1, where=kept | ~some[:, None])
    return jnp.where(some, value, 0.0)


# %% 2.2 wrong: a small number inside the logarithm
# log(total + 1e-30) is −69 for an empty row, where −∞ is asked for, and stays so whatever is added.
# see: 2.6
def masked_logsumexp(x, mask):
    kept = mask & (x > -jnp.inf)
    x = jnp.where(kept, x, 0.0)
    top = jax.lax.stop_gradient(jnp.max(x, axis=1, where=kept, initial=-1e30))
    top = jnp.where(kept.any(axis=1), top, 0.0)
    exps = jnp.where(kept, jnp.exp(jnp.where(kept, x - top[:, None], 0.0)), 0.0)
    return top + jnp.log(exps.sum(axis=1) + 1e-30)


# %% 2.2 wrong: forgets to add the largest number again
# What was taken out of the exponent must come back in front of the logarithm.
# see: 2.6
def masked_logsumexp(x, mask):
    kept = mask & (x > -jnp.inf)
    x = jnp.where(kept, x, 0.0)
    top = jax.lax.stop_gradient(jnp.max(x, axis=1, where=kept, initial=-1e30))
    exps = jnp.where(kept, jnp.exp(jnp.where(kept, x - top[:, None], 0.0)), 0.0)
    total = exps.sum(axis=1)
    return jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1.0)), -jnp.inf)


# %% 2.2 wrong: one maximum for all rows
# The largest number of the whole array lies 1000 above some rows, whose exponentials are then all
# 0. Each row has a maximum of its own: `axis=1`.
# see: 2.6
def masked_logsumexp(x, mask):
    kept = mask & (x > -jnp.inf)
    x = jnp.where(kept, x, 0.0)
    top = jax.lax.stop_gradient(jnp.max(x, where=kept, initial=-1e30))
    exps = jnp.where(kept, jnp.exp(jnp.where(kept, x - top, 0.0)), 0.0)
    total = exps.sum(axis=1)
    return jnp.where(total > 0, top + jnp.log(jnp.where(total > 0, total, 1.0)), -jnp.inf)


# %% 2.3 right: log-softmax by hand, labels made harmless first
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    logits = jnp.where(real, logits, 0.0)
    labels = jnp.where(real_rows, labels, 0)
    top = jnp.max(jnp.where(real, logits, -jnp.inf), axis=1, initial=-1e30, keepdims=True)
    below = jnp.where(real, logits - jax.lax.stop_gradient(top), 0.0)
    total = jnp.sum(jnp.where(real, jnp.exp(below), 0.0), axis=1)
    losses = jnp.log(jnp.where(real_rows, total, 1.0)) - below[jnp.arange(len(labels)), labels]
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.maximum(real_rows.sum(), 1)


# %% 2.3 right: one row at a time, jitted, relative to the label's logit
@jax.jit
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    def loss(row, label, real):
        row = jnp.where(real & real_classes, row, 0.0)
        ahead = row - row[jnp.where(real, label, 0)]
        far = jnp.where(real_classes, ahead, jnp.finfo(row.dtype).min)
        return jnp.where(real, jax.nn.logsumexp(far), 0.0)

    total = jnp.sum(jax.vmap(loss)(logits, labels, real_rows))
    return total / jnp.where(real_rows.any(), real_rows.sum(), 1)


# %% 2.3 right: a selection of the log-probabilities, by JAX's own log_softmax
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    clean = jnp.where(real_rows[:, None] & real_classes[None, :], logits, 0.0)
    log_probs = jax.nn.log_softmax(clean, axis=-1, where=real_classes[None, :])
    chosen = (labels[:, None] == jnp.arange(clean.shape[1])) & real_rows[:, None]
    return -jnp.sum(jnp.where(chosen, log_probs, 0.0)) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: the logarithm of the softmax
# A probability that is too small for float32 is 0, and its logarithm −∞ with a NaN gradient. Take
# `log_softmax`, which never forms the probability.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    probs = jax.nn.softmax(jnp.where(real, logits, 0.0), where=real_classes)
    chosen = (labels[:, None] == jnp.arange(logits.shape[1])) & real_rows[:, None]
    logs = jnp.log(jnp.where(chosen, probs, 1.0))
    return -jnp.sum(logs) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: a small number inside the logarithm
# log(p + 1e-8) is never below −18.4, however wrong the network is, and its gradient vanishes there.
# Take `log_softmax`.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    probs = jax.nn.softmax(jnp.where(real, logits, 0.0), where=real_classes)
    chosen = (labels[:, None] == jnp.arange(logits.shape[1])) & real_rows[:, None]
    logs = jnp.where(chosen, jnp.log(probs + 1e-8), 0.0)
    return -jnp.sum(logs) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: the label's logit is taken from the logsumexp
# logsumexp adds the maximum again at the end, and then the label's logit goes off: two large numbers
# are subtracted. Around 1e6 float32 has no digits left for a loss of 1.4, and at 1e8 a tie of three
# costs 0. Take the maximum off *before* the label's logit, or the label's logit off first of all.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    logits = jnp.where(real_rows[:, None] & real_classes, logits, 0.0)
    labels = jnp.where(real_rows, labels, 0)
    total = jax.nn.logsumexp(logits, axis=1, where=real_classes)
    losses = total - jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.maximum(real_rows.sum(), 1)


# %% 2.3 wrong: divides by all rows
# The padded rows add nothing to the sum, but `mean` counts them. Divide by the number of real rows.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    log_probs = jax.nn.log_softmax(jnp.where(real, logits, 0.0), where=real_classes)
    losses = -log_probs[jnp.arange(len(labels)), jnp.where(real_rows, labels, 0)]
    return jnp.mean(jnp.where(real_rows, losses, 0.0))


# %% 2.3 wrong: the sum, not the mean
# Divide by the number of real rows, or by 1 if there is none.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    log_probs = jax.nn.log_softmax(jnp.where(real, logits, 0.0), where=real_classes)
    losses = -log_probs[jnp.arange(len(labels)), jnp.where(real_rows, labels, 0)]
    return jnp.sum(jnp.where(real_rows, losses, 0.0))


# %% 2.3 wrong: weights of 0 for padded rows
# 0 times NaN is NaN: as soon as a padded row holds anything odd, the loss is gone. Select with
# `where`, before the softmax and behind it.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    log_probs = jax.nn.log_softmax(logits, where=real_classes)
    losses = -jnp.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]
    return jnp.sum(losses * real_rows) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: one where, behind the softmax
# The loss is right whatever the padding holds, and so it would be with `nan_to_num`. Its gradient
# goes back through the softmax of the padded rows and brings NaN out of them. Clean the logits
# before the softmax as well.
# see: 2.3
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    log_probs = jax.nn.log_softmax(logits, where=real_classes)
    losses = -jnp.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: multiplies the loss by a mask, the logits being clean
# The logits of padded rows are harmless, but their labels are not: a label that is no real class has
# a loss of ∞ or NaN, and 0 times that is NaN. Select with `where`, and clean the labels too.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    log_probs = log_softmax(jnp.where(real, logits, 0.0), real_classes)
    losses = -jnp.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]
    return jnp.sum(losses * real_rows) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: the library's loss times weights
# Padded classes are taken out, padded rows only multiplied by 0, and 0 times NaN is NaN. Clean their
# logits and labels before the loss, and select behind it.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    losses = cross_entropy(jnp.where(real_classes, logits, -jnp.inf), labels)
    return jnp.sum(losses * real_rows) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: the library's loss behind one where
# The loss is right whatever the padding holds. Its gradient goes back through the loss of the padded
# rows, and where these hold NaN it brings NaN out of them. Clean the logits before the loss as well.
# see: 2.3
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    losses = cross_entropy(jnp.where(real_classes, logits, -jnp.inf), labels)
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: padded classes have a logit of 0
# A logit of 0 is a probability like any other: the padded classes take their share of the softmax.
# They must not be in its sum.
# see: 2.6
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    log_probs = jax.nn.log_softmax(jnp.where(real, logits, 0.0))
    losses = -log_probs[jnp.arange(len(labels)), jnp.where(real_rows, labels, 0)]
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: onehot times log-probabilities
# The log-probability of a padded class is −∞, and the 0 of the one-hot vector times −∞ is NaN. Take
# the label's entry out, or select with `where`.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    log_probs = jax.nn.log_softmax(jnp.where(real, logits, 0.0), where=real_classes)
    losses = -jnp.sum(jax.nn.one_hot(labels, logits.shape[1]) * log_probs, axis=1)
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: 0 / 0 for a batch of padding
# Without a real row the count is 0. Divide by max(count, 1).
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    real = real_rows[:, None] & real_classes
    log_probs = jax.nn.log_softmax(jnp.where(real, logits, 0.0), where=real_classes)
    losses = -log_probs[jnp.arange(len(labels)), jnp.where(real_rows, labels, 0)]
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.sum(real_rows)


# %% 2.3 wrong: adds a huge negative number to padded classes
# Adding does not replace: NaN plus anything is NaN, and −∞ stays −∞. Put numbers in place of what
# the padding holds.
# see: 2.6
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    log_probs = jax.nn.log_softmax(logits + jnp.where(real_classes, 0.0, -1e30))
    losses = -log_probs[jnp.arange(len(labels)), jnp.where(real_rows, labels, 0)]
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.maximum(jnp.sum(real_rows), 1)


# %% 2.3 wrong: knows padded rows by their label
# A padded row may carry a label that looks real, 0 for one. The mask says which rows are real.
# see: 2.7
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    rows = (labels >= 0) & (labels < logits.shape[1])
    log_probs = jax.nn.log_softmax(
        jnp.where(rows[:, None] & real_classes, logits, 0.0), where=real_classes
    )
    losses = -log_probs[jnp.arange(len(labels)), jnp.where(rows, labels, 0)]
    return jnp.sum(jnp.where(rows, losses, 0.0)) / jnp.maximum(jnp.sum(rows), 1)


# %% 2.4 right: the tangent divided
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    x, dx = primals[0], tangents[0]
    return safe_arccos(x), -dx / jnp.sqrt(jnp.clip((1 - x) * (1 + x), 1e-4))


# %% 2.4 right: by defjvps, with rsqrt and where
@jax.custom_jvp
def safe_arccos(x):
    inside = jnp.abs(x) < 1
    beyond = jnp.where(x > 0, 0.0, jnp.pi)
    return jnp.where(inside, jnp.arccos(jnp.where(inside, x, 0.0)), beyond)


def _slope(x):
    radicand = 1 - x * x
    flat = radicand > 1e-4
    return jnp.where(flat, -jax.lax.rsqrt(jnp.where(flat, radicand, 1.0)), -100.0)


safe_arccos.defjvps(lambda dx, value, x: _slope(x) * dx)


# %% 2.4 right: no rule, a surrogate whose slope is the one that is wanted
def safe_arccos(x):
    value = jnp.arccos(jnp.clip(x, -1, 1))
    edge = np.float32(np.sqrt(1 - 1e-4))
    inner = jnp.abs(x) < edge
    curve = jnp.where(inner, jnp.arccos(jnp.where(inner, x, 0.0)), -100 * x)
    return curve + jax.lax.stop_gradient(value - curve)


# %% 2.4 right: custom_vjp would lack the forward mode, so linearity by hand
@jax.jit
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arctan2(jnp.sqrt(jnp.maximum(1 - x * x, 0.0)), x)


def _rule(primals, tangents):
    (x,), (dx,) = primals, tangents
    flat = (1 + x) * (1 - x)
    size = jnp.where(flat > 1e-4, flat, 1e-4) ** -0.5
    return jnp.arctan2(jnp.sqrt(jnp.maximum(1 - x * x, 0.0)), x), -size * dx


safe_arccos.__wrapped__.defjvp(_rule)


# %% 2.4 wrong: clips the argument and lets JAX differentiate
# The slope is −∞ on the edge, and beyond it the 0 of `clip` times −∞: NaN. Give the function a rule
# of its own.
# see: 2.8
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


# %% 2.4 wrong: clips the argument a little inside the edge
# The slope is tame, but the value at 1 is no longer 0, and beyond the edge the slope is 0: an angle
# that got there never leaves. Change the rule, not the value.
# see: 2.8
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1 + 1e-6, 1 - 1e-6))


# %% 2.4 wrong: a rule with one where
# The slope is right, and where it is capped, its own derivative is 0 · ∞: the rule is differentiated
# like any other function. Keep the bad number away from the root, inside the `where`.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    radicand = 1 - x * x
    return safe_arccos(x), jnp.where(radicand > 1e-4, -1 / jnp.sqrt(radicand), -100.0) * dx


# %% 2.4 wrong: caps the quotient, not the radicand
# Beyond the edge the radicand is negative, its root NaN, and the larger of NaN and −100 is NaN. Cap
# what goes into the root.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return safe_arccos(x), jnp.maximum(-1 / jnp.sqrt(1 - x * x), -100.0) * dx


# %% 2.4 wrong: cleans the tangent
# `nan_to_num` is not linear: twice the tangent is not twice the result. Reverse mode has to turn a
# rule around, and can turn around linear ones only; JAX says so with a bare AssertionError. Clean the
# slope, and multiply by the tangent at last.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    moved = jnp.nan_to_num(-dx / jnp.sqrt(1 - x * x), nan=-100.0, posinf=-100.0, neginf=-100.0)
    return safe_arccos(x), moved


# %% 2.4 wrong: no cap near the edge
# Only ±1 and what lies beyond are treated. Between 0.99995 and 1 the slope is still steeper than
# 100, and grows without limit.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    inside = jnp.abs(x) < 1
    root = jnp.sqrt(jnp.where(inside, 1 - x * x, 1e-4))
    return safe_arccos(x), -dx / root


# %% 2.4 wrong: caps from 0.9999 on
# The slope is −100 where 1 − x² is 1e-4, and that is at 0.99995. From 0.9999 on it would be −71.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    inside = jnp.abs(x) < 0.9999
    root = jnp.sqrt(jnp.where(inside, 1 - x * x, 1e-4))
    return safe_arccos(x), -dx / root


# %% 2.4 wrong: adds 1e-4 under the root
# On the edge that is right. Everywhere else it changes a slope that was fine, by six per cent where
# the true one is 35.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return safe_arccos(x), -dx / jnp.sqrt(jnp.maximum(1 - x * x, 0.0) + 1e-4)


# %% 2.4 wrong: flat beyond the edges
# With a slope of 0 no gradient ever brings the number back. The task asks for −100 there.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    slope = -1 / jnp.sqrt(jnp.maximum(1 - x * x, 1e-4))
    return safe_arccos(x), jnp.where(jnp.abs(x) <= 1, slope, 0.0) * dx


# %% 2.4 wrong: forgets the tangent
# A rule maps a tangent to a tangent, linearly. This one returns the slope itself, whatever comes in,
# and reverse mode finds nothing that depends on the tangent: the gradient is 0.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,) = primals
    return safe_arccos(x), -1 / jnp.sqrt(jnp.maximum(1 - x * x, 1e-4))


# %% 2.4 wrong: a rule that returns another value
# Under differentiation JAX takes the value from the rule, and this one calls `jnp.arccos` without
# the clip: the plain call is right, `value_and_grad` says NaN. Let the rule call the function.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return jnp.arccos(x), -dx / jnp.sqrt(jnp.maximum(1 - x * x, 1e-4))


# %% 2.4 wrong: the sign of arcsin
# arccos falls: its slope is negative everywhere.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return safe_arccos(x), dx / jnp.sqrt(jnp.maximum(1 - x * x, 1e-4))


# %% 2.4 wrong: a constant slope
# `stop_gradient` around the slope keeps NaN out of the second derivative by making it 0 everywhere.
# see: 2.8
@jax.custom_jvp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@safe_arccos.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    slope = -1 / jnp.sqrt(jnp.maximum(1 - x * x, 1e-4))
    return safe_arccos(x), jax.lax.stop_gradient(slope) * dx


# %% 2.4 wrong: a rule for reverse mode only
# `custom_vjp` has no forward mode, so `jvp` is refused, and with it `jacfwd` and forward-over-reverse
# Hessians. A `custom_jvp` rule serves both.
# see: 2.8
@jax.custom_vjp
def safe_arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


def _forward(x):
    return safe_arccos(x), x


def _backward(x, cotangent):
    return (-cotangent / jnp.sqrt(jnp.maximum(1 - x * x, 1e-4)),)


safe_arccos.defvjp(_forward, _backward)


# %% 2.5 right: values first, then vjp from the back
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    variance = jnp.var(hidden, axis=0)
    some = variance > 0
    std = jnp.where(some, jnp.sqrt(jnp.where(some, variance, 1.0)), 0.0)
    pooled = jnp.concatenate([hidden.mean(axis=0), std])
    return jnp.logaddexp(pooled @ v, 0.0)


# %% 2.5 right: gradients of ever longer tails, by NumPy's eyes; the length of the deviations
def culprit(stages, x):
    values = [jnp.asarray(x)]
    for name, stage in stages:
        values.append(stage(values[-1]))
        if not np.isfinite(values[-1]).all():
            return name
    slope = np.ones_like(values[-1])
    for (name, stage), value in zip(reversed(stages), reversed(values[:-1])):
        slope = jax.grad(lambda x: jnp.vdot(stage(x), slope))(value)
        if not np.isfinite(slope).all():
            return name


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(jnp.square(x)) @ w)
    mean = hidden.mean(axis=0)
    std = safe_norm(hidden - mean, axis=0) / np.sqrt(len(x))
    return jax.nn.softplus(mean @ v[:4] + std @ v[4:])


# %% 2.5 right: by recursion; a floor far below any variance
def culprit(stages, x):
    def walk(x, left):
        if not left:
            return None, jnp.ones_like(x)
        (name, stage), *rest = left
        y, pull = jax.vjp(stage, x)
        if not bool(jnp.isfinite(y).all()):
            return name, None
        found, slope = walk(y, rest)
        if found is not None:
            return found, None
        (slope,) = pull(slope)
        return (None if bool(jnp.isfinite(slope).all()) else name), slope

    return walk(jnp.asarray(x), list(stages))[0]


@jax.jit
def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    variance = jnp.mean((hidden - mean) ** 2, axis=0)
    std = jnp.sqrt(jnp.maximum(variance, 1e-30))
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: looks for NaN only
# The first number that breaks is often ∞: the slope of the root is ∞, and NaN comes one stage later,
# as 0 · ∞. Look for what is not finite, in the values and on the way back.
# see: 2.11
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if jnp.any(jnp.isnan(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if jnp.any(jnp.isnan(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    std = safe_norm(hidden - mean, axis=0) / jnp.sqrt(hidden.shape[0])
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: names the last slope that breaks
# The walk goes back to the input and remembers the latest stage that it found. But what is broken
# stays broken all the way: the *first* one on the way back made it.
# see: 2.11
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope, found = jnp.ones_like(x), None
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            found = name
    return found


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    std = safe_norm(hidden - mean, axis=0) / jnp.sqrt(hidden.shape[0])
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: looks at the values only
# All values of a network can be finite while its gradient is not. Where the values are fine, go back
# through the stages with `jax.vjp`.
# see: 2.11
def culprit(stages, x):
    for name, stage in stages:
        x = stage(x)
        if not jnp.all(jnp.isfinite(x)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    std = safe_norm(hidden - mean, axis=0) / jnp.sqrt(hidden.shape[0])
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: the first stage with a steep slope, from the front
# The gradient is computed from the back: the stage that breaks it first is the last one in the
# chain. What comes in front of it may be just as bad, but was not the first.
# see: 2.11
def culprit(stages, x):
    values = [jnp.asarray(x)]
    for name, stage in stages:
        values.append(stage(values[-1]))
        if not jnp.all(jnp.isfinite(values[-1])):
            return name
    for (name, stage), value in zip(stages, values):
        slope = jax.grad(lambda x: jnp.sum(stage(x)))(value)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    std = safe_norm(hidden - mean, axis=0) / jnp.sqrt(hidden.shape[0])
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: asks each stage for its own slope
# A slope that comes back is multiplied by the next: each may be finite, and their product not. Hand
# on what came back, as `jax.vjp` does.
# see: 2.11
def culprit(stages, x):
    values = [jnp.asarray(x)]
    for name, stage in stages:
        values.append(stage(values[-1]))
        if not jnp.all(jnp.isfinite(values[-1])):
            return name
    for (name, stage), value in reversed(list(zip(stages, values))):
        slope = jax.grad(lambda x: jnp.sum(stage(x)))(value)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    std = safe_norm(hidden - mean, axis=0) / jnp.sqrt(hidden.shape[0])
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: goes back before it has gone forward
# If a value breaks, everything behind it is beside the point. Look at the values first, at the
# gradient only where all of them are finite.
# see: 2.11
def culprit(stages, x):
    values, pulls = [], []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        values.append((name, x))
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return next((name for name, x in values if not jnp.all(jnp.isfinite(x))), None)


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    std = safe_norm(hidden - mean, axis=0) / jnp.sqrt(hidden.shape[0])
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: names the stage in front
# The gradient that a stage *returns* is not finite, so the stage itself has broken it, not the one
# that it is handed to.
# see: 2.11
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for place in range(len(stages) - 1, -1, -1):
        (slope,) = pulls[place][1](slope)
        if not jnp.all(jnp.isfinite(slope)):
            return pulls[max(place - 1, 0)][0]
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    std = safe_norm(hidden - mean, axis=0) / jnp.sqrt(hidden.shape[0])
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: adds 1e-6 under the root
# A standard deviation of 1e-7, that of a quiet clip, becomes 1e-3, and its gradient all but
# vanishes. The guard must leave alone whatever is not 0.
# see: 2.5
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    std = jnp.sqrt(jnp.var(hidden, axis=0) + 1e-6)
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), std])
    return jnp.logaddexp(pooled @ v, 0.0)


# %% 2.5 wrong: adds 1e-12 under the root
# 1e-12 seems to be nothing, but the variance of a quiet clip is smaller still: its standard deviation
# becomes 1e-6, and most of its gradient is gone. The guard must leave alone whatever is not 0.
# see: 2.5
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    std = jnp.sqrt(jnp.var(hidden, axis=0) + 1e-12)
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), std])
    return jnp.logaddexp(pooled @ v, 0.0)


# %% 2.5 wrong: takes a quiet clip for silence
# A variance below 1e-12 counts as 0 here, but that of a quiet clip is smaller still: its spread, and
# the gradient of it, are gone. Only 0 is 0.
# see: 2.5
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    variance = jnp.var(hidden, axis=0)
    some = variance > 1e-12
    std = jnp.where(some, jnp.sqrt(jnp.where(some, variance, 1.0)), 0.0)
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), std])
    return jnp.logaddexp(pooled @ v, 0.0)


# %% 2.5 wrong: a where behind the standard deviation
# `jnp.std` has already met its root by then, and reverse mode goes back through it: 0 · ∞. The
# variance must be guarded before the root.
# see: 2.3
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    std = jnp.std(hidden, axis=0)
    std = jnp.where(std > 0, std, 0.0)
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), std])
    return jnp.logaddexp(pooled @ v, 0.0)


# %% 2.5 wrong: the variance in place of its root
# The variance has a gradient everywhere, but it is another number, and so is the score of every
# clip.
# see: 2.5
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), jnp.var(hidden, axis=0)])
    return jnp.logaddexp(pooled @ v, 0.0)


# %% 2.5 wrong: one idle unit silences them all
# The guard asks whether *any* standard deviation is 0, and drops all of them: the units that are
# alive lose their spread too. Guard each one by itself.
# see: 2.3
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    variance = jnp.var(hidden, axis=0)
    fine = jnp.all(variance > 0)
    std = jnp.where(fine, jnp.sqrt(jnp.where(fine, variance, 1.0)), 0.0)
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), std])
    return jnp.logaddexp(pooled @ v, 0.0)


# %% 2.5 wrong: mends an operation that was not broken
# `logaddexp` and `log1p` are safe as they are: it is the standard deviation of equal numbers that
# has no slope. Run `culprit` on the stages of the network, on a silent clip.
# see: 2.11
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    energy = jnp.log(1.0 + jnp.maximum(x * x, 1e-12))
    hidden = jnp.tanh(energy @ w)
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), jnp.std(hidden, axis=0)])
    return jnp.maximum(pooled @ v, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(pooled @ v)))


# %% 2.5 wrong: the variance in one pass
# E[h²] − E[h]² is the variance on paper. In float32 it is the difference of two numbers that agree in
# all digits where the clip is nearly steady, and what is left is rounding error.
# see: 2.5
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    variance = jnp.mean(hidden**2, axis=0) - mean**2
    some = variance > 0
    std = jnp.where(some, jnp.sqrt(jnp.where(some, variance, 1.0)), 0.0)
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)


# %% 2.5 wrong: stops the gradient of the spread
# No NaN comes back, and no gradient either: the network can no longer learn from the spread of its
# units. Only where the spread is 0 has it no slope.
# see: 2.3
def culprit(stages, x):
    pulls = []
    for name, stage in stages:
        x, pull = jax.vjp(stage, x)
        if not jnp.all(jnp.isfinite(x)):
            return name
        pulls.append((name, pull))
    slope = jnp.ones_like(x)
    for name, pull in reversed(pulls):
        (slope,) = pull(slope)
        if not jnp.all(jnp.isfinite(slope)):
            return name
    return None


def mended_score(w, v, x):
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    std = jax.lax.stop_gradient(jnp.std(hidden, axis=0))
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), std])
    return jnp.logaddexp(pooled @ v, 0.0)
