/* Table of the scripts: CASE(file, name, what). Each runs in its own process. */
#ifndef IPC_CASES_H
#define IPC_CASES_H

#define IPC_CASES                                                                                \
    CASE(handles, blocks, "200 blocks of mixed sizes, each opens as itself")                     \
    CASE(handles, three_opens, "one handle opened three times, closed four times")               \
    CASE(handles, neighbours, "two blocks side by side, closed in either order")                 \
    CASE(handles, interior, "exported by an inner address")                                      \
    CASE(handles, lifetimes, "one handle a lifetime")                                            \
    CASE(handles, freed, "freed before it is opened")                                            \
    CASE(handles, freed_open, "freed while it is open")                                          \
    CASE(handles, own, "opened where it was exported")                                           \
    CASE(handles, arguments, "wrong arguments, damaged handles")                                 \
    CASE(handles, captured, "opened and closed while a stream captures")                         \
    CASE(handles, three_processes, "passed on to a third process, exported again")               \
    CASE(handles, memory_used, "what 1,000 exports of 4 KiB take")                               \
    CASE(ends, exporter_ended, "the exporter ends before it is opened")                          \
    CASE(ends, exporter_killed, "the exporter is killed while it is open")                       \
    CASE(ends, exporter_stopped, "the exporter is stopped")                                      \
    CASE(ends, importer_killed, "importers with 1,000 open blocks are killed")                   \
    CASE(ends, mixed_out, "exported with the library, opened without it")                        \
    CASE(ends, mixed_in, "exported without the library, opened with it")                         \
    CASE(ends, devices, "another device is current")                                             \
    CASE(ends, contexts, "a context ends with open blocks; a reset")                             \
    CASE(ends, forked, "a child of the exporter")                                                \
    CASE(ends, executed, "the exporter executes a program")                                      \
    CASE(ends, producer, "the producer ends before the consumer closes")                         \
    CASE(order, events, "an event recorded here, waited for there")                              \
    CASE(order, events_back, "an event recorded there, waited for here")                         \
    CASE(order, events_gone, "an event whose maker or recorder is gone")                         \
    CASE(order, race_freed, "freed while another process works on it is reported")               \
    CASE(order, race_used, "work on what was freed is reported")                                 \
    CASE(order, race_none, "what was synchronised is not reported")                              \
    CASE(order, race_events, "what an event orders is not reported")                             \
    CASE(order, race_killed, "the work of a killed process is over")                             \
    CASE(caches, cache_ucx, "UCX's cache of mappings, by base, size and id")                     \
    CASE(caches, cache_id, "MPICH's and libfabric's check of ids")                               \
    CASE(caches, cache_handle, "PyTorch's and NCCL's cache by handle")

#define CASE(file, name, what) void case_##name(void);
IPC_CASES
#undef CASE

#endif
