/* Interface between multicast.c, which makes objects and binds memory, and multicast_map.c, which
 * maps them.  Global lock; the file is shared with other processes. */
#ifndef SIM_MULTICAST_H
#define SIM_MULTICAST_H

#include "ipc_share.h"

enum { SIM_BINDINGS = 256 }; /* of an object */

/* Memory that one process bound.  A process may be killed at any instruction, so `state` is stored
 * last. */
typedef struct {
    atomic_ullong state; /* 0: free; odd: being written; else its number, never used twice */
    int32_t device;      /* of the machine */
    int32_t file;        /* descriptor of the memory in its process */
    uint64_t offset;     /* in the object */
    uint64_t place, size; /* in that file */
    uint64_t at;         /* device address in its process; UINT64_MAX: not mapped */
    sim_token_t maker;   /* that process; its magic is 0 if the object is not shared */
} sim_binding_t;

/* The file of an object. */
typedef struct {
    uint64_t magic;
    CUmulticastObjectProp prop;
    atomic_ullong members; /* bits of the machine's devices */
    atomic_ullong last;    /* newest number of a binding */
    sim_binding_t binding[SIM_BINDINGS];
} sim_team_file_t;

typedef struct {
    sim_object_t object;
    CUmulticastObjectProp prop;
    sim_team_file_t *shared;
    int file;
    bool imported;
    unsigned refs, maps; /* handles that the program holds; mappings */
    struct {
        uint64_t number; /* 0: not bound by this process */
        sim_memory_t memory;
    } mine[SIM_BINDINGS];
    struct {
        uint64_t number; /* 0: not looked at */
        uint64_t size;
        char *bytes; /* NULL: its process has ended */
        sim_peer_t *peer;
    } seen[SIM_BINDINGS];
} sim_team_t;

/* Returns the object behind a handle, even if the program has released it; NULL: none. */
sim_team_t *sim_team_any(CUmemGenericAllocationHandle handle);
/* Returns the object behind a handle; NULL if there is none or the program has released it. */
sim_team_t *sim_team_get(CUmemGenericAllocationHandle handle);
bool sim_team_whole(const sim_team_t *team);
bool sim_team_has(const sim_team_t *team, int device);
/* Waits a moment, without the lock, for other threads and processes.  Everything may have changed
 * afterwards. */
void sim_team_wait(void);
/* Frees the object if neither a handle nor a mapping keeps it. */
void sim_team_settle(sim_team_t *team);
/* Returns the number of the binding in a slot, 0: none. */
uint64_t sim_binding_number(const sim_team_t *team, unsigned slot);
/* Returns the bytes of the binding in a slot; NULL: there are none, or their process has
 * ended. */
char *sim_binding_bytes(sim_team_t *team, unsigned slot);
void sim_binding_forget(sim_team_t *team, unsigned slot);

#endif
