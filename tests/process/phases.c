/* Requests in phases of the program, which accel_phase_push and ranges of NVTX name.
 *
 * usage: phases STEP...
 *   take BYTES        take_buffer takes a block
 *   drop              frees the newest block
 *   push NAME, pop    a phase of the C API
 *   range NAME, end   a range of NVTX in the default domain; "range -": without a name
 *   wide NAME         such a range, of wide characters
 *   domain NAME, leave  a range in the domain "test", with a registered name
 *   text NAME         a range in that domain, with its text
 *   thread BYTES      another thread takes a block
 *   steps N           N ranges "step I of I", each with a block */
#include <dlfcn.h>
#include <pthread.h>

#include "program.h"

#ifdef PHASES_NVTX
#include <nvtx3/nvToolsExt.h>
#else
#include "phases_table.h"
#endif

static CUdeviceptr block[4096];
static unsigned blocks;
static nvtxDomainHandle_t domain;

__attribute__((noinline)) static void take_buffer(size_t bytes) {
    NEED(blocks < 4096);
    MUST(cuMemAlloc_v2(&block[blocks++], bytes));
    __asm__ volatile("" : : : "memory");
}

static void *in_thread(void *bytes) {
    test_device(0);
    take_buffer((size_t)bytes);
    return NULL;
}

static void thread(size_t bytes) {
    pthread_t other;
    NEED(!pthread_create(&other, NULL, in_thread, (void *)bytes));
    NEED(!pthread_join(other, NULL));
}

static int phase(const char *function, const char *name) {
    int (*call)(const char *);
    *(void **)&call = dlsym(RTLD_DEFAULT, function);
    return call ? call(name) : 0;
}

static nvtxEventAttributes_t attributes(int type) {
    nvtxEventAttributes_t a;
    memset(&a, 0, sizeof a);
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.messageType = type;
    return a;
}

static int range(const char *name) {
    nvtxEventAttributes_t nameless = attributes(0);
    return strcmp(name, "-") != 0 ? nvtxRangePushA(name) : nvtxRangePushEx(&nameless);
}

static int wide(const char *name) {
    wchar_t text[64] = L"";
    NEED(mbstowcs(text, name, 63) != (size_t)-1);
    return nvtxRangePushW(text);
}

static int in_domain(const char *name, bool registered) {
    nvtxEventAttributes_t a = attributes(registered ? NVTX_MESSAGE_TYPE_REGISTERED : NVTX_MESSAGE_TYPE_ASCII);
    char copy[64];
    if (!domain)
        domain = nvtxDomainCreateA("test");
    snprintf(copy, sizeof copy, "%s", name);
    if (registered)
        a.message.registered = nvtxDomainRegisterStringA(domain, copy);
    else
        a.message.ascii = copy;
    memset(registered ? copy : (char[1]){0}, 0, 1); /* the name was copied */
    return nvtxDomainRangePushEx(domain, &a);
}

static void steps(int count) {
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "step %d of %d", i, i);
        nvtxRangePushA(name);
        take_buffer(512);
        nvtxRangePop();
    }
}

int main(int argc, char **argv) {
    program_device();
    for (int i = 1; i < argc; i++) {
        const char *step = argv[i], *text = i + 1 < argc ? argv[i + 1] : "";
        int answer = 0, has_text = 1;
        if (!strcmp(step, "take"))
            take_buffer((size_t)atol(text));
        else if (!strcmp(step, "thread"))
            thread((size_t)atol(text));
        else if (!strcmp(step, "push"))
            answer = phase("accel_phase_push", text);
        else if (!strcmp(step, "range"))
            answer = range(text);
        else if (!strcmp(step, "wide"))
            answer = wide(text);
        else if (!strcmp(step, "domain") || !strcmp(step, "text"))
            answer = in_domain(text, *step == 'd');
        else if (!strcmp(step, "steps"))
            steps(atoi(text));
        else
            has_text = 0;
        if (!strcmp(step, "drop"))
            MUST(cuMemFree_v2(block[--blocks]));
        else if (!strcmp(step, "pop"))
            answer = phase("accel_phase_pop", NULL);
        else if (!strcmp(step, "end"))
            answer = nvtxRangePop();
        else if (!strcmp(step, "leave"))
            answer = nvtxDomainRangePop(domain);
        else
            NEED(has_text);
        i += has_text;
        printf("%s%d", i > 1 + has_text ? " " : "", answer);
    }
    puts("");
    return 0;
}
