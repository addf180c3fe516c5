/* See sizes.h. */
#include "base/sizes.h"

#include <stdlib.h>
#include <string.h>

bool cmd_size_parse(const char *text, uint64_t unit, uint64_t *bytes) {
    static const char suffixes[] = "KMGT";
    char *end;
    if ((*text < '0' || *text > '9') && *text != '.')
        return false;
    double value = strtod(text, &end);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix) {
        value *= (double)((uint64_t)1 << (10 * (suffix - suffixes + 1)));
        end++;
        if (!strcmp(end, "iB") || !strcmp(end, "B"))
            end += strlen(end);
    } else if (*end == 'x') {
        value *= (double)unit;
        end++;
    }
    if (*end || !(value >= 1) || value > (double)((uint64_t)1 << 47))
        return false;
    *bytes = (uint64_t)value;
    return true;
}
