/* Opens a plugin in several ways.  usage: host HOW PLUGIN [lookups|handle]
 * With `lookups` the plugin only looks symbols up, with `handle` only this program does. */
#include "reach.h"

typedef void lookups_fn(void);
typedef int use_fn(void);

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    void *plugin = NULL;
    if (!strcmp(argv[1], "local"))
        plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    else if (!strcmp(argv[1], "lazy"))
        plugin = dlopen(argv[2], RTLD_LAZY | RTLD_LOCAL);
    else if (!strcmp(argv[1], "global"))
        plugin = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    else if (!strcmp(argv[1], "deepbind"))
        plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    else if (!strcmp(argv[1], "after") && dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    else if (!strcmp(argv[1], "namespace"))
        plugin = dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
    if (!plugin) {
        printf("no plugin: %s\n", dlerror());
        return 1;
    }
    look("host plugin handle", plugin, "cuMemAlloc_v2", dlsym);
    look("host default", RTLD_DEFAULT, "cuMemAlloc_v2", dlsym);
    if (argc > 3 && !strcmp(argv[3], "handle"))
        return 0;
    lookups_fn *lookups = FUNCTION(lookups_fn, dlsym(plugin, "plugin_lookups"));
    use_fn *use = FUNCTION(use_fn, dlsym(plugin, "plugin_use"));
    use_fn *dependency = FUNCTION(use_fn, dlsym(plugin, "plugin_dependency"));
    if (!lookups || !use || !dependency)
        return 1;
    lookups();
    fflush(stdout);
    return argc > 3 ? 0 : use() | dependency();
}
