/* Names of modules (module_name.h). */
#include "observe/module_name.h"

#include <stdio.h>
#include <string.h>

const char *ac_module_path(const ac_live_t *page, unsigned number, const char *exe) {
    if (__atomic_load_n(&page->module_state[number], __ATOMIC_ACQUIRE) != AC_LIVE_NAMED)
        return NULL;
    return page->module[number][0] ? page->module[number] : exe;
}

const char *ac_module_file(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void ac_module_put(json_t *json, const char *path, bool *failed) {
    const char *name = path ? ac_module_file(path) : NULL;
    ac_json_put(json, "name", name ? ac_json_text(name, strlen(name)) : json_null(), failed);
    ac_json_put(json, "path", path ? ac_json_text(path, strlen(path)) : json_null(), failed);
}

char *ac_module_label(char text[AC_MODULE_LABEL], unsigned number, const char *unknown) {
    char exe[AC_LIVE_EXE];
    ac_live_exe(ac_live, exe);
    const char *path = ac_module_path(ac_live, number, exe);
    snprintf(text, AC_MODULE_LABEL, "%.63s", path ? ac_module_file(path) : unknown);
    return text;
}
