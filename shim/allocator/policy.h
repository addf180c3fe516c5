/* The tuning constants of policy.def: AC_LARGE is the value of the row LARGE.  They are ints: a product needs a
 * factor of 64 bits. */
#ifndef AC_POLICY_H
#define AC_POLICY_H

enum {
#define TUNING(name, value, ...) AC_##name = (value),
#include "allocator/policy.def"
#undef TUNING
};

#endif
