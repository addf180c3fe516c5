/* The version of the live page's layout.  A reader with other rows than the writer would show counters under
 * wrong names.  So the version is computed from the rows, and changes by itself when a row is added, moved or
 * renamed. */
#include "observe/live.h"

/* The names of all rows of the page, in order. */
static const char rows[] = ""
#define STAT_COUNT(name, doc)        "," #name
#define STAT_POOLS(name, unit, doc)  ",3 " #name
#define STAT_SINGLE(name, unit, doc) ",1 " #name
#include "observe/stats.def"
#define DEVICE_COUNTER(name, unit, doc) "," #name
#include "observe/counters.def"
#define PROCESS_COUNTER(name, unit, doc) ";" #name
#include "observe/counters.def"
#define HOST_STAT(name, unit, doc) "|1 " #name
#define HOST_COUNT(name, doc)      "|" #name
#include "observe/host_stats.def"
    ;

/* FNV-1a: any change of a single byte gives another value. */
uint32_t ac_live_version(void) {
    uint32_t hash = (2166136261u ^ AC_LIVE_LAYOUT) * 16777619u;
    for (const char *at = rows; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    return hash;
}
