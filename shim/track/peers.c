/* See peers.h. */
#include "track/peers.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "device/wait.h"
#include "track/ipc_pages.h"
#include "lock.h"

enum { PAIRS = 1024, PATIENCE_S = 1 };

static ac_mutex_t lock = AC_MUTEX(LEAF);
static ac_cond_t taken;
static struct { const ac_context_t *from, *to; } pair[PAIRS];
static unsigned pairs;
static uint64_t held[AC_LIVE_DEVICES]; /* bits of devices that keep their access (peers.h) */
static bool lost; /* the table was full: nothing is taken back any more */

/* Driver calls under way, without the lock, that change the access to a device's pages: number of
 * threads that grant it, and true if one thread takes it back. */
static struct {
    unsigned giving;
    bool taking;
} telling[AC_LIVE_DEVICES];

/* Updates the access to all of the device's memory on pages, of this process and of others. */
static void allow(CUdevice device, ac_allocator_t *allocator) {
    ac_expand_allow(allocator);
    ac_ipc_pages_allow(device);
}

/* Takes back access that is no longer granted.  While work is under way, nothing is taken back:
 * the work may use the access, and unused access does no harm.  If another thread changes the
 * access, this one would have to wait for its call.  Both cases are left to a later change. */
static void take_back(CUdevice device, ac_allocator_t *allocator) {
    bool calm = ac_cuda_peers_former(device) && ac_fence_calm(0);
    ac_lock(&lock);
    bool take = calm && !telling[device].giving && !telling[device].taking;
    if (take) {
        telling[device].taking = true;
        ac_cuda_peers_take_back(device);
    }
    ac_unlock(&lock);
    if (!take)
        return;
    allow(device, allocator);
    ac_lock(&lock);
    ac_cuda_peers_taken(device);
    telling[device].taking = false;
    ac_cond_broadcast(&taken);
    ac_unlock(&lock);
}

/* Called with the peer in the device's table; `fresh`: it was added just now.  On return the peer
 * may reach the pages.  A thread that takes access back may be in a call that it made before:
 * this thread waits for that call first.  If the driver holds that call beyond the limit, it
 * received it before this thread's call.  Called under the lock, and releases it. */
static void give(CUdevice device, bool fresh, ac_allocator_t *allocator) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_S;
    while (telling[device].taking && ac_wait_until(&taken, &lock, &until) != ETIMEDOUT)
        continue;
    bool tell = fresh || telling[device].giving; /* the other thread may not be through */
    telling[device].giving += tell;
    ac_unlock(&lock);
    if (!tell)
        return;
    allow(device, allocator);
    ac_lock(&lock);
    telling[device].giving--;
    ac_unlock(&lock);
    take_back(device, allocator);
}

void ac_peers_enabled(const ac_context_t *from, const ac_context_t *to) {
    CUdevice device = to->cuda.device;
    ac_lock(&lock);
    if (pairs < PAIRS) {
        pair[pairs].from = from;
        pair[pairs++].to = to;
    } else {
        lost = true;
    }
    give(device, ac_cuda_peer_add(device, from->cuda.device), ac_device_allocator(device));
}

void ac_peers_hold(CUdevice device, CUdevice peer, ac_allocator_t *allocator) {
    if (device < 0 || device >= AC_LIVE_DEVICES || peer < 0 || peer >= AC_LIVE_DEVICES)
        return;
    ac_lock(&lock);
    held[device] |= (uint64_t)1 << peer;
    give(device, ac_cuda_peer_add(device, peer), allocator);
}

/* Removes a pair.  Returns true if a device lost its access.  Called under the lock. */
static bool remove_pair(unsigned i) {
    CUdevice from = pair[i].from->cuda.device, to = pair[i].to->cuda.device;
    pair[i] = pair[--pairs];
    for (unsigned j = 0; j < pairs; j++)
        if (pair[j].from->cuda.device == from && pair[j].to->cuda.device == to)
            return false;
    return !lost && !(held[to] >> from & 1) && ac_cuda_peer_remove(to, from);
}

void ac_peers_disabled(const ac_context_t *from, const ac_context_t *to) {
    unsigned i = 0;
    ac_lock(&lock);
    while (i < pairs && (pair[i].from != from || pair[i].to != to))
        i++;
    bool less = i < pairs && remove_pair(i);
    ac_unlock(&lock);
    if (less)
        take_back(to->cuda.device, ac_device_allocator(to->cuda.device));
}

void ac_peers_context_gone(const ac_context_t *context) {
    uint64_t less = 0; /* bits of devices */
    ac_lock(&lock);
    for (unsigned i = pairs; i-- > 0;)
        if (pair[i].from == context || pair[i].to == context) {
            CUdevice device = pair[i].to->cuda.device;
            less |= (uint64_t)remove_pair(i) << device;
        }
    ac_unlock(&lock);
    for (CUdevice device = 0; less; device++, less >>= 1)
        if (less & 1)
            take_back(device, ac_device_allocator(device));
}
