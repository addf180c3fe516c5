/* Frames of a Python interpreter in the process (unwind.h). They come from the interpreter's public
 * functions, which the program or a library defines.
 *
 * Only a thread that holds the interpreter's lock may call them, since they change reference counts.
 * PyGILState_Check alone does not prove it: after a second interpreter was made, it returns 1 to every
 * thread. The current thread state must also be the calling thread's. In a foreign call that released the
 * lock (ctypes.CDLL, most bindings), the library reads the frames without a call of the interpreter
 * (python_own.h). */
#include "tell/unwind.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "bind/callers.h"
#include "bind/objects.h"
#include "tell/python_own.h"

/*   PYTHON(result, name, parameters) */
#define PYTHON_FUNCTIONS(PYTHON)                                                                 \
    PYTHON(int, Py_IsInitialized, (void))                                                        \
    PYTHON(int, PyGILState_Check, (void))                                                        \
    PYTHON(void *, PyGILState_GetThisThreadState, (void))                                        \
    PYTHON(void *, PyErr_Occurred, (void))                                                       \
    PYTHON(void, PyErr_Clear, (void))                                                            \
    PYTHON(void *, PyEval_GetFrame, (void))                                                      \
    PYTHON(void *, PyFrame_GetBack, (void *))                                                    \
    PYTHON(void *, PyFrame_GetCode, (void *))                                                    \
    PYTHON(int, PyFrame_GetLineNumber, (void *))                                                 \
    PYTHON(void *, PyObject_GetAttrString, (void *, const char *))                               \
    PYTHON(const char *, PyUnicode_AsUTF8, (void *))                                             \
    PYTHON(void, Py_IncRef, (void *))                                                            \
    PYTHON(void, Py_DecRef, (void *))

typedef struct {
#define PYTHON(result, name, parameters) result(*name) parameters;
    PYTHON_FUNCTIONS(PYTHON)
#undef PYTHON
    int (*PyGC_Disable)(void), (*PyGC_Enable)(void); /* 3.10 and later, else NULL */
    void *(*current)(void); /* PyThreadState_GetUnchecked, or its former name */
    uintptr_t base;
    ac_python_own_t own;
} python_t;

static python_t python;
enum { UNKNOWN, LOOKING, FOUND };
static _Atomic int state;
static _Atomic uint32_t looked; /* ac_callers_now of the last search without success */

/* Free-threaded and debug builds have other layouts. */
static void find_own(const ac_object_t *object) {
    const unsigned long *version = ac_object_symbol(object, "Py_Version");
    const char *(*describe)(void);
    void *found = ac_object_symbol(object, "Py_GetVersion");
    memcpy(&describe, &found, sizeof describe);
    bool other = !version || !describe || strstr(describe(), "free-threading") ||
                 ac_object_symbol(object, "_Py_NegativeRefcount") ||
                 ac_object_symbol(object, "PyModule_Create2TraceRefs");
    python.own = (ac_python_own_t){.version = other ? 0 : *version,
                                   .code_type = ac_object_symbol(object, "PyCode_Type"),
                                   .text_type = ac_object_symbol(object, "PyUnicode_Type"),
                                   .bytes_type = ac_object_symbol(object, "PyBytes_Type")};
}

static bool find_all(const ac_object_t *object) {
    bool all = true;
    void *found;
#define PYTHON(result, name, parameters)                                                         \
    found = ac_object_symbol(object, #name);                                                     \
    memcpy(&python.name, &found, sizeof found);                                                  \
    all &= found != NULL;
    PYTHON_FUNCTIONS(PYTHON)
#undef PYTHON
    found = ac_object_symbol(object, "PyThreadState_GetUnchecked");
    if (!found)
        found = ac_object_symbol(object, "_PyThreadState_UncheckedGet");
    memcpy(&python.current, &found, sizeof found);
    found = ac_object_symbol(object, "PyGC_Enable");
    memcpy(&python.PyGC_Enable, &found, sizeof found);
    found = found ? ac_object_symbol(object, "PyGC_Disable") : NULL;
    memcpy(&python.PyGC_Disable, &found, sizeof found);
    python.base = object->base;
    find_own(object);
    return all && python.current;
}

/* Searches for the interpreter once for each set of loaded objects: it is there from the start, or came with
 * a dlopen. */
static bool have_python(void) {
    int now = atomic_load_explicit(&state, memory_order_acquire), unknown = UNKNOWN;
    uint32_t generation = ac_callers_now();
    if (now == FOUND)
        return true;
    if (now == LOOKING || atomic_load(&looked) == generation ||
        !atomic_compare_exchange_strong(&state, &unknown, LOOKING))
        return false;
    ac_object_t object = ac_object_defining("PyGILState_Check");
    bool found = object.dynamic && find_all(&object);
    atomic_store(&looked, generation);
    atomic_store_explicit(&state, found ? FOUND : UNKNOWN, memory_order_release);
    return found;
}

static bool holds_lock(void) {
    return python.Py_IsInitialized() && python.PyGILState_Check() && python.current() &&
           python.current() == python.PyGILState_GetThisThreadState() && !python.PyErr_Occurred();
}

/* Copies the text of the attribute; "?" if it has none. */
static void copy_text(void *code, const char *name, char *text, size_t size) {
    void *value = python.PyObject_GetAttrString(code, name);
    const char *found = value ? python.PyUnicode_AsUTF8(value) : NULL;
    snprintf(text, size, "%s", found ? found : "?");
    if (value)
        python.Py_DecRef(value);
    if (!found)
        python.PyErr_Clear();
}

/* "function\nfile" */
static uint64_t frame_of(void *frame) {
    enum { PART = 500 };
    char name[PART], file[PART], text[2 * PART + 2];
    void *code = python.PyFrame_GetCode(frame);
    copy_text(code, "co_name", name, sizeof name);
    copy_text(code, "co_filename", file, sizeof file);
    python.Py_DecRef(code);
    snprintf(text, sizeof text, "%s\n%s", name, file);
    int line = python.PyFrame_GetLineNumber(frame);
    return ac_frame_text(ac_site_text(text), line > 0 ? (uint32_t)line : 0);
}

unsigned ac_python_frames(uint64_t *frame, unsigned room, uintptr_t *interpreter, bool *locked) {
    unsigned count = 0;
    if (!have_python())
        return 0;
    *interpreter = python.base;
    *locked = holds_lock();
    if (!*locked)
        return python.Py_IsInitialized()
                   ? ac_python_own_frames(&python.own, python.PyGILState_GetThisThreadState(), frame, room)
                   : 0;
    /* Frames become objects here (3.11). A collection would run the program's destructors inside its request
     * or free. */
    bool collects = python.PyGC_Disable && python.PyGC_Disable();
    void *at = python.PyEval_GetFrame();
    if (at)
        python.Py_IncRef(at);
    while (at) {
        if (count < room)
            frame[count++] = frame_of(at);
        void *back = count < room ? python.PyFrame_GetBack(at) : NULL;
        python.Py_DecRef(at);
        at = back;
    }
    if (collects)
        python.PyGC_Enable();
    return count;
}
