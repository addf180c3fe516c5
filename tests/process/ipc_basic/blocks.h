/* Memory of this process and its peers, in short words. */
#ifndef IPC_BLOCKS_H
#define IPC_BLOCKS_H

#include "peer.h"

enum { LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, KIB = 1 << 10, MIB = 1 << 20 };

/* `size` bytes of the word, here. */
CUdeviceptr taken(size_t size, unsigned word);
CUipcMemHandle handle_of(CUdeviceptr address);
bool same(CUipcMemHandle a, CUipcMemHandle b);
/* Where the peer has it open now. */
CUdeviceptr opened(peer_t *peer, CUipcMemHandle handle);
/* 4 KiB of the word 11, there. */
CUipcMemHandle exported_there(peer_t *peer, CUdeviceptr *address);
unsigned word_at(CUdeviceptr address);

#endif
