/* The frame (frame.c) and the list (rules.c) of the rules of the stream-ordered API. */
#ifndef RULES_H
#define RULES_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelcache.h"
#include "harness.h"

enum { FREE_STREAMS = 3, BLOCKING = 2 };

typedef struct {
    CUstream s[FREE_STREAMS]; /* non-blocking */
    CUstream b[BLOCKING];
    CUevent e[2];
} room_t;

typedef struct {
    const char *name;
    void (*run)(room_t *r);
} case_t;

extern const case_t all[], alone[], limited[];
extern const size_t all_count, alone_count, limited_count;

extern CUcontext context;
extern CUfunction slow, quick;
extern size_t size; /* of the next block */
extern bool served; /* the library serves: addresses can be judged */
extern unsigned wrong;

void expect(bool holds, const char *what, int line); /* counts only if the library serves */
long long pending(void);   /* blocks that were given back and are not free yet */
long long allocated(void); /* blocks that the library has handed out */
#define SAME(a, b)   expect((a) == (b), "other memory than the one that was free for it", __LINE__)
#define OTHER(a, b)  expect((a) != (b), "memory that work may still be under way on", __LINE__)
#define PENDING(n)   expect(pending() == (n), "not " #n " blocks that wait", __LINE__)
#define ALLOCATED(n) expect(allocated() == (n), "not " #n " blocks of the library", __LINE__)

CUdeviceptr take(CUstream stream);
void give(CUdeviceptr memory, CUstream stream);
void use(CUdeviceptr memory, CUstream stream);   /* long work */
void touch(CUdeviceptr memory, CUstream stream); /* short work */
CUdeviceptr
busy(CUstream stream); /* returns memory with pending work, given back in the stream's order */
CUdeviceptr next(CUstream stream); /* requests memory, uses it and gives it back */
void order(CUevent event, CUstream from, CUstream to);

#endif
