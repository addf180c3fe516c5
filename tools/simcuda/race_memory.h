/* Interface between the race detector's files on memory: its owners (race_owners.c) and its uses
 * (race_memory.c).  Global lock. */
#ifndef SIM_RACE_MEMORY_H
#define SIM_RACE_MEMORY_H

#include "race_order.h"

struct sim_owner {
    sim_node_t node; /* key = base */
    unsigned refs;
    uint64_t base, size, id;
    /* Uses with the same value never conflict.  It is the owner's id, or the id of the physical
     * memory for mappings without program owners. */
    uint64_t lifetime;
    bool program; /* told by simcuda_owner_begin, else one of the driver's records */
    bool live;
    bool hosts;       /* record: the program has had lifetimes in it */
    bool by_time;     /* record of a pool: work creates and ends it, not calls */
    bool exported;    /* record: other processes may open it */
    unsigned shared;  /* 1 + its slot in the register, 0: none */
    uint64_t foreign; /* imported memory: the lifetime in the process that owns it; 0: unknown */
};

/* ---- race_owners.c ---- */

sim_owner_t *sim_owner_at(uint64_t address); /* current owner of the address; NULL: it is free */
bool sim_owner_same(const sim_owner_t *a, const sim_owner_t *b);
void sim_owner_unref(sim_owner_t *owner);

/* ---- race_memory.c ---- */

/* Called when a lifetime ends.  Uses that the host has seen complete cannot race with later
 * ones. */
void sim_uses_retire(const sim_owner_t *ended);
/* Called when a range that the host can reach has a new owner.  Reports uses that may not be
 * over. */
void sim_uses_given(const sim_owner_t *owner);
/* Called when the driver takes the range back.  Reports uses that may not be over, and forgets the
 * rest. */
void sim_uses_release(const sim_owner_t *record);

/* ---- multicast_map.c ---- */

/* Finds memory that a store to [address, address + length) of one multicast mapping reaches, at
 * the address of its mapping in this process.  Returns the next piece behind number *slot (0 at
 * first).  False: no more. */
bool sim_multicast_here(uint64_t address, uint64_t length, unsigned *slot, uint64_t *at,
                        uint64_t *bytes);
/* Publishes a store as a use of the memory that other processes bound there. */
void sim_multicast_publish(sim_op_t *op, uint64_t address, uint64_t length, bool write);

/* ---- race_shared.c ---- */

struct sim_peer;
/* Adds a use of another process's memory, at this place of its device addresses. */
void sim_shared_reach(sim_op_t *op, struct sim_peer *peer, uint64_t offset, uint64_t length,
                      bool write);

/* Numbers of uses published for other processes, and of unfinished uses of this process's memory
 * by others. */
extern size_t sim_shared_published, sim_shared_foreign;
void sim_shared_owner_new(sim_owner_t *owner);  /* in exported memory */
void sim_shared_owner_gone(sim_owner_t *owner); /* about to go; `shared` is set */
void sim_shared_hosts(const sim_owner_t *record);
void sim_shared_imported(sim_owner_t *owner); /* in imported memory; sets `foreign` */
/* Called when a use of imported memory is submitted.  False: the memory has another owner now, or
 * none. */
bool sim_shared_use(sim_op_t *op, const sim_use_t *use);
void sim_shared_known(void); /* the host knows more */
void sim_shared_sync(void);  /* reads uses of this process's memory by others */

#endif
