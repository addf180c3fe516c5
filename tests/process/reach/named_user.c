/* Has no such variable, only uses those of the library that it needs. */
#include "named.h"

NAMED(extern, )

int named_use_elsewhere(void);
int named_use_elsewhere(void) {
    NAMED_SAY("user");
    if (named_load())
        return 1;
    NAMED_SAY("user loaded");
    driver_t driver = NAMED_DRIVER;
    return exercise(&driver);
}
