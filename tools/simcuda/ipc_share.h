/* The register: a memory file that one process maps to share state with others, which reach it
 * through /proc/<pid>/fd and map it too.  It lists the exported allocations and events that still
 * exist, and carries messages about them to other processes.
 *
 * A process may be killed at any instruction, so there is no lock in a register.  A word in each
 * entry tells whether the rest of the entry is valid, and is stored last.  The file is sparse;
 * unused parts take no memory. */
#ifndef SIM_IPC_SHARE_H
#define SIM_IPC_SHARE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "sim.h"

#define SIM_SHARE_MAGIC 0x3263706961647563ull

enum {
    SIM_SHARE_SLOTS = 8192,   /* exported allocations */
    SIM_SHARE_EVENTS = 8192,  /* events for several processes */
    SIM_SHARE_TICKETS = 16,   /* of an event: newest records that are tracked */
    SIM_SHARE_OWNERS = 16384, /* race detector: lifetimes inside exported allocations */
    SIM_SHARE_USES = 8192,    /* race detector: uses by other processes */
    SIM_SHARE_COVERS = 4,
};
enum { SIM_RECORD_PLAIN = 1, SIM_RECORD_HOSTS }; /* HOSTS: only the lifetimes in it count */

/* One record of an event.  number * 2 while it is pending, number * 2 + 1 when complete. */
typedef struct {
    atomic_ullong state;
    atomic_int pid; /* of the process that recorded */
} sim_ticket_t;

typedef struct {
    atomic_ullong id;   /* 0: the slot is free */
    atomic_ullong last; /* newest ticket given out; 0: never recorded */
    sim_ticket_t ticket[SIM_SHARE_TICKETS];
} sim_share_event_t;

typedef struct {
    atomic_ullong lifetime; /* 0: the slot is free */
    atomic_uint record;     /* 0: told by the program, else SIM_RECORD_* */
    uint64_t offset, size;  /* in the memory file of the process */
} sim_share_owner_t;

/* A use of this process's memory by another process.  It lasts from the submission of the work
 * until the host of the other process knows that the work is over. */
typedef struct {
    atomic_ullong state; /* 0: free; odd: being written; else its number, never used twice */
    uint64_t cookie, chain, pos, seq;
    uint64_t offset, length, lifetime;
    atomic_ullong covers[SIM_SHARE_COVERS]; /* tickets of events that come after it */
    int32_t pid;
    bool write;
    char type[16];
} sim_share_use_t;

typedef struct {
    uint64_t magic, cookie; /* cookie: of the process, never guessable or reused */
    atomic_ullong id[SIM_SHARE_SLOTS];
    sim_share_event_t event[SIM_SHARE_EVENTS];
    atomic_uint owners; /* slots of `owner` ever used */
    atomic_uint uses;   /* the same of `use` */
    atomic_ullong last_use;
    sim_share_owner_t owner[SIM_SHARE_OWNERS];
    sim_share_use_t use[SIM_SHARE_USES];
} sim_share_t;

/* This process's register; NULL until something is shared. */
extern sim_share_t *sim_share;
/* Makes the register; false: no memory file. */
bool sim_share_start(void);

/* The head of every handle.  `check` covers the whole handle. */
typedef struct {
    uint64_t magic, cookie;
    uint64_t id;           /* of the allocation or event */
    uint64_t offset, size; /* memory: in the file of device memory */
    int32_t pid, mirror_fd, register_fd;
    uint16_t slot;
    uint8_t device, check;
} sim_token_t;

/* Fills the fields that identify this process, and `check`. */
void sim_token_seal(sim_token_t *token, uint64_t magic);
/* Reads a handle.  False: it is no handle of this driver and kind. */
bool sim_token_read(sim_token_t *token, const void *handle, uint64_t magic);
/* Opens a file of the process that made the token.  INVALID_HANDLE: the process has ended.
 * MAP_FAILED: this process may not look into it. */
CUresult sim_token_open(const sim_token_t *token, int its_fd, int *out);

/* Another process, while something of it is open here. */
typedef struct sim_peer {
    struct sim_peer *next;
    sim_share_t *share;
    uint64_t cookie;
    pid_t pid;
    unsigned refs;
} sim_peer_t;

/* Returns the peer of a record of kind SIM_MEM_IPC (ipc.c), and its place in that peer's memory
 * file. */
sim_peer_t *sim_import_peer(const sim_alloc_t *record, uint64_t *offset);
/* Returns the peer of a record of kind SIM_MEM_VMM (vmm.c), and its place in the device addresses of
 * that peer.  NULL: the memory belongs to this process, or its origin is unknown. */
sim_peer_t *sim_vmm_peer(const sim_alloc_t *record, uint64_t *offset);

CUresult sim_peer_open(const sim_token_t *token, sim_peer_t **out);
void sim_peer_close(sim_peer_t *peer);
/* Returns true if the process still runs.  A zombie does not run. */
bool sim_process_runs(pid_t pid);

#endif
