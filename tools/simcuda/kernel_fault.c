/* Kernels that compute, and access memory that is not mapped.
 *
 * Addresses that are reserved (cuMemAddressReserve) but not mapped have no access rights in the
 * mirror.  A kernel that is a host function faults there, as on a GPU.  The signal handler leaves
 * the function, the context has CUDA_ERROR_ILLEGAL_ADDRESS from then on, and a line names the
 * address.  Faults at other addresses belong to the program: its own handler gets them.  Memory of
 * cuMemAlloc has no inaccessible border behind it, which is possible on a GPU, too. */
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "sim.h"
#include "kernel_fault.h"
#include "tsan.h"

typedef struct {
    sigjmp_buf back;
    uint64_t address; /* device address of the fault */
} inside_t;

static _Thread_local inside_t *inside __attribute__((tls_model("initial-exec")));
static struct sigaction before;
static _Atomic uint64_t last;

static void on_fault(int number, siginfo_t *info, void *machine) {
    uint64_t address = (uint64_t)(uintptr_t)info->si_addr - (uint64_t)sim_mirror_delta;
    inside_t *mine = inside;
    if (mine && sim_space_holds(address)) {
        mine->address = address;
        siglongjmp(mine->back, 1);
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, machine);
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        sigaction(SIGSEGV, &before, NULL); /* the instruction runs again, and ends the process */
    } else {
        before.sa_handler(number);
    }
}

void sim_kernel_faults_start(void) {
    static atomic_bool started;
    struct sigaction ours;
    if (atomic_exchange(&started, true))
        return;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &ours, &before);
}

CUresult sim_kernel_call(simcuda_kernel_fn *fn, const simcuda_launch_t *launch) {
    inside_t mine;
    if (sigsetjmp(mine.back, 0)) {
        inside = NULL;
        SIM_DEVICE_LEFT;
        atomic_store(&last, mine.address);
        sim_log("kernel %s used address 0x%llx, where nothing is mapped", launch->name,
                (unsigned long long)mine.address);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    inside = &mine;
    fn(launch);
    inside = NULL;
    return CUDA_SUCCESS;
}

__attribute__((visibility("default"))) unsigned long long simcuda_fault_address(void) {
    return atomic_load(&last);
}
