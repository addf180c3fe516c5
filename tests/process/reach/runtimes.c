/* Several runtimes in one process: plugins opened RTLD_LOCAL, each linked with another version.
 * A runtime keeps errors and the chosen device to itself, so every line that is printed here
 * differs when a call reaches another plugin's runtime.
 *
 * usage: runtimes P12 P13 P11 INDIRECT GONE COME [FIRST]
 *   P12, P13, P11  linked with that version
 *   INDIRECT       not linked with any, but with P13
 *   GONE, COME     linked with 12 and 13: one is closed before the other is opened, which tends
 *                  to put it at the same address
 *   FIRST          a runtime that every object can see, opened before the others */
#include "reach.h"
#include "runtimes.h"

enum { ROUNDS = 10, ALONE = 5 };
static const size_t huge = (size_t)1 << 60;

static void *handle_of(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        printf("no plugin: %s\n", dlerror());
        exit(1);
    }
    return handle;
}

static const plugin_t *plugin_of(void *handle) {
    return dlsym(handle, "plugin");
}

static const plugin_t *p12, *p13;

static void errors(const char *what, int result) {
    int error12 = p12->last_error(), error13 = p13->last_error();
    printf("%s: %d, then 12 has %d, 13 has %d\n", what, result, error12, error13);
}

static void each_fails(const char *name, const plugin_t *plugin) {
    void *pointer = NULL, *function = NULL;
    printf("%s\n", name);
    errors("  too much", plugin->allocate(&pointer, huge));
    errors("  a bad free", plugin->release((void *)64));
    errors("  no such device", plugin->set_device(99));
    errors("  no name", plugin->get_entry(NULL, &function));
}

static void both_get_memory(void) {
    void *a = NULL, *b = NULL;
    int failed = p12->set_device(0) | p13->set_device(0);
    for (int i = 0; i < ROUNDS; i++) {
        failed |= p12->allocate(&a, 1000) | p13->allocate(&b, 1000);
        failed |= !a || !b || a == b;
        failed |= p12->release(a) | p13->release(b);
    }
    for (int i = 0; i < ALONE; i++) {
        failed |= p13->allocate(&b, 1000);
        failed |= p13->release(b);
    }
    printf("memory for both: %s\n", failed ? "failed" : "ok");
}

static int device_of(void *pointer) {
    int device = -1;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    cuPointerGetAttribute_fn *attribute =
        FUNCTION(cuPointerGetAttribute_fn, dlsym(driver, "cuPointerGetAttribute"));
    attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)pointer);
    return device;
}

/* Version 11 only notes a chosen device: what another runtime does meanwhile is no proof that
 * its allocations come from there. */
static void a_device_is_pending(const plugin_t *p11) {
    void *a = NULL, *b = NULL, *c = NULL;
    int results[] = {p13->set_device(0),      p11->set_device(0),     p13->allocate(&c, 1000),
                     p13->release(c),         p11->set_device(1),     p13->allocate(&a, 1000),
                     p11->allocate(&b, 1000), p13->allocate(&c, 1000)};
    for (unsigned i = 0; i < sizeof(results) / sizeof(results[0]); i++)
        printf("%d ", results[i]);
    printf("on devices %d, %d and %d\n", device_of(a), device_of(b), device_of(c));
    p13->release(a);
    p11->release(b);
    p13->release(c);
    p13->set_device(0);
}

int main(int argc, char **argv) {
    if (argc < 7)
        return 2;
    if (argc > 7 && !dlopen(argv[7], RTLD_NOW | RTLD_GLOBAL))
        return 1;
    p12 = plugin_of(handle_of(argv[1]));
    each_fails("12 before there is a 13", (p13 = p12));
    p13 = plugin_of(handle_of(argv[2]));
    each_fails("12", p12);
    each_fails("13", p13);
    each_fails("12 again", p12);
    each_fails("behind 13", plugin_of(handle_of(argv[4])));
    both_get_memory();
    a_device_is_pending(plugin_of(handle_of(argv[3])));
    void *gone = handle_of(argv[5]);
    each_fails("12, closed afterwards", plugin_of(gone));
    dlclose(gone);
    each_fails("13, opened afterwards", plugin_of(handle_of(argv[6])));
    return 0;
}
