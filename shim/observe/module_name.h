/* Names of modules, as the live page has them, for dumps and messages.  Internal to observe/. */
#ifndef AC_MODULE_NAME_H
#define AC_MODULE_NAME_H

#include <string.h>

#include "observe/json.h"
#include "observe/live.h"

/* The file of the module of that number; `exe`: the program's (ac_live_exe).  NULL: not known. */
static inline const char *ac_module_path(const ac_live_t *page, unsigned number,
                                         const char *exe) {
    if (__atomic_load_n(&page->module_state[number], __ATOMIC_ACQUIRE) != AC_LIVE_NAMED)
        return NULL;
    return page->module[number][0] ? page->module[number] : exe;
}

/* The file's name without its folder. */
static inline const char *ac_module_short(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* `name` and `path` of a module, which both are null where it is not known. */
static inline void ac_module_put(json_t *json, const char *path, bool *failed) {
    const char *name = path ? ac_module_short(path) : NULL;
    ac_json_put(json, "name", name ? ac_json_text(name, strlen(name)) : json_null(), failed);
    ac_json_put(json, "path", path ? ac_json_text(path, strlen(path)) : json_null(), failed);
}

#endif
