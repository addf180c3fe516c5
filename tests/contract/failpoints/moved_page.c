/* A page of mapped memory moves to another address and another owner while work of the old owner
 * is pending.
 *
 * The first cases do this without the library: the program itself makes the fault that the
 * library could make with expandable segments. It maps the page of a hole at the address that
 * needs memory, before or after it unmaps the hole. Unmapping first happens to wait for the
 * work, which CUDA does not promise in all cases. */
#include "failpoints.h"

enum { PAGE = 2 << 20 };

static void map(CUdeviceptr at, CUmemGenericAllocationHandle page) {
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemMap(at, PAGE, 0, page, 0));
    MUST(cuMemSetAccess(at, PAGE, &access, 1));
}

static void move(failpoint_run_t *t, bool waits, bool taken_first) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle page;
    CUdeviceptr hole, needed;
    MUST(cuMemAddressReserve(&hole, PAGE, 0, 0, 0));
    MUST(cuMemAddressReserve(&needed, PAGE, 0, 0, 0));
    MUST(cuMemCreate(&page, PAGE, &prop, 0));
    map(hole, page);

    t->memory = hole;
    simcuda_owner_begin(hole, PAGE);
    failpoint_old(t, t->stream[0]);
    simcuda_owner_end(hole);
    if (waits)
        MUST(cuStreamSynchronize(t->stream[0]));

    if (taken_first)
        MUST(cuMemUnmap(hole, PAGE));
    map(needed, page);
    t->memory = needed;
    simcuda_owner_begin(needed, PAGE);
    failpoint_new(t, t->stream[1]);
    if (!taken_first)
        MUST(cuMemUnmap(hole, PAGE));
}

void failpoint_page_moved(failpoint_run_t *t) {
    move(t, false, false);
}

void failpoint_page_moved_waited(failpoint_run_t *t) {
    move(t, true, false);
}

void failpoint_page_taken(failpoint_run_t *t) {
    move(t, false, true);
}

void failpoint_page_taken_waited(failpoint_run_t *t) {
    move(t, true, true);
}

/* The library moves the page. Memory is short, so the pages of freed memory serve a larger
 * request. The only stream's order lets others have that memory at once, but does not keep its
 * pages in place. */
void failpoint_page_moved_pending(failpoint_run_t *t) {
    enum { MIB = 1 << 20, OLD_AT = 16 * MIB, NEW_AT = 15 * MIB };
    CUdeviceptr behind, freed;
    failpoint_take(t, 32 * MIB);
    MUST(cuMemAlloc_v2(&behind, MIB)); /* without it the larger block would begin at the same
                                          address */
    freed = t->memory;
    t->memory += OLD_AT;
    failpoint_old(t, t->stream[0]);
    t->memory = freed;
    failpoint_give(t);
    MUST(cuMemAlloc_v2(&t->memory, 48 * MIB));
    t->memory += NEW_AT; /* the page that the old owner wrote to */
    failpoint_new(t, t->stream[0]);
}
