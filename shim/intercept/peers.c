/* See peers.h. */
#include "intercept/peers.h"

#include <pthread.h>

#include "device/wait.h"
#include "intercept/ipc_pages.h"
#include "lock.h"

enum { PAIRS = 1024 };

static ac_mutex_t lock = AC_MUTEX(LEAF);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool
    changing; /* a thread changes the table, and tells the driver of it without the lock */
static struct { const ac_context_t *from, *to; } pair[PAIRS];
static unsigned pairs;
static uint64_t held[AC_LIVE_DEVICES]; /* bits of devices that keep their right, see peers.h */
static bool lost; /* there was no room for one: nothing is taken back any more */

static void begin(void) {
    ac_lock(&lock);
    while (changing)
        ac_wait(&changed, &lock);
    changing = true;
    ac_unlock(&lock);
}

static void end(void) {
    ac_lock(&lock);
    changing = false;
    pthread_cond_broadcast(&changed);
    ac_unlock(&lock);
}

/* Pages of the device get its list of peers.  While work is under way no right is taken back: the
 * work may be using it, and one that is not used does no harm. */
static void tell(CUdevice device, ac_allocator_t *allocator) {
    bool take = ac_cuda_peers_take_back(device, false) && ac_fence_calm();
    ac_cuda_peers_take_back(device, take);
    if (allocator)
        ac_expand_allow(allocator);
    ac_ipc_pages_allow(device);
    if (take)
        ac_cuda_peers_taken(device);
}

void ac_peers_enabled(const ac_context_t *from, const ac_context_t *to) {
    begin();
    if (pairs < PAIRS) {
        pair[pairs].from = from;
        pair[pairs++].to = to;
    } else {
        lost = true;
    }
    if (ac_cuda_peer_add(to->cuda.device, from->cuda.device))
        tell(to->cuda.device, ac_arena_allocator(to->arena));
    end();
}

void ac_peers_hold(CUdevice device, CUdevice peer, ac_allocator_t *allocator) {
    if (device < 0 || device >= AC_LIVE_DEVICES || peer < 0 || peer >= AC_LIVE_DEVICES)
        return;
    begin();
    held[device] |= (uint64_t)1 << peer;
    if (ac_cuda_peer_add(device, peer))
        tell(device, allocator);
    end();
}

/* Between begin and end. */
static void remove_pair(unsigned i) {
    const ac_context_t *from = pair[i].from, *to = pair[i].to;
    pair[i] = pair[--pairs];
    for (unsigned j = 0; j < pairs; j++)
        if (pair[j].from->cuda.device == from->cuda.device &&
            pair[j].to->cuda.device == to->cuda.device)
            return;
    if (!lost && !(held[to->cuda.device] >> from->cuda.device & 1) &&
        ac_cuda_peer_remove(to->cuda.device, from->cuda.device))
        tell(to->cuda.device, ac_arena_allocator(to->arena));
}

void ac_peers_disabled(const ac_context_t *from, const ac_context_t *to) {
    unsigned i = 0;
    begin();
    while (i < pairs && (pair[i].from != from || pair[i].to != to))
        i++;
    if (i < pairs)
        remove_pair(i);
    end();
}

void ac_peers_context_gone(const ac_context_t *context) {
    begin();
    for (unsigned i = pairs; i-- > 0;)
        if (pair[i].from == context || pair[i].to == context)
            remove_pair(i);
    end();
}
