/* Interface between the race detector's files: its record of one item of work. */
#ifndef SIM_RACE_ORDER_H
#define SIM_RACE_ORDER_H

#include "race.h"

/* Positions reached on each chain; immutable once shared. */
typedef struct {
    unsigned refs, count;
    uint64_t at[];
} sim_vector_t;

typedef struct sim_owner sim_owner_t;

typedef struct {
    uint64_t address, length;
    bool write;
    sim_use_kind_t kind;
    sim_owner_t *owner; /* NULL: none found yet */
} sim_use_t;

typedef struct sim_op {
    unsigned refs;
    unsigned chain;      /* 0: none yet */
    uint64_t pos;        /* all earlier positions of the chain come before this item */
    sim_vector_t *pre;   /* other items before it */
    sim_vector_t *extra; /* before its successors only: programmatic launches */
    uint64_t host_seen;  /* version of the host's knowledge that is in `pre` */
    bool joint; /* touches no memory: takes no position, only follows others */
    bool settled, resolved, done;
    bool undecided; /* follows a wait for a value: the order is not known completely */
    uint64_t seq, stream_id, ctx_id;
    int device;
    const char *type, *label;
    sim_use_t *uses;
    size_t use_count, use_room;
} sim_op_t;

sim_op_t *sim_op_of(sim_work_t *work); /* made on demand; NULL without memory */
sim_op_t *sim_op_ref(sim_op_t *op);
void sim_op_unref(sim_op_t *op);
bool sim_op_before(const sim_op_t *first, const sim_op_t *second);
bool sim_op_host_knows(const sim_op_t *op);
void sim_op_host_learns(const sim_op_t *op); /* that the item is complete */
void sim_op_join(sim_op_t *op, const sim_op_t *before);
/* Makes a chain for work of another process, and an item on it, which the caller releases. */
unsigned sim_chain_foreign(void); /* 0: no memory */
sim_op_t *sim_op_foreign(unsigned chain, uint64_t pos);
sim_op_t *sim_op_entered(void); /* item whose effect is happening, or NULL */

bool sim_op_add_use(sim_op_t *op, const sim_use_t *use);
void sim_op_release_uses(sim_op_t *op);
/* Orders an allocation after frees of the same memory. */
void sim_op_join_frees(sim_op_t *op);
void sim_op_judge(sim_op_t *op);

typedef enum {
#define SIM_FINDING(name, text) SIM_FOUND_##name,
#include "findings.def"
#undef SIM_FINDING
    SIM_FINDINGS
} sim_finding_t;

/* One side of a report.  A report is a line with the finding, and a line for each operation. */
typedef struct {
    const char *text;
    const sim_op_t *op;
    const sim_owner_t *owner;
    uint64_t address, length;
    bool write;
} sim_party_t;
void sim_race_report(sim_finding_t what, uint64_t address, uint64_t length,
                     const sim_party_t *first, const sim_party_t *second);
void sim_owner_describe(const sim_owner_t *owner, char *out, size_t room);

#endif
