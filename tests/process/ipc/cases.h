/* The scripts: CASE(name, what).  Each runs in a process of its own. */
#ifndef IPC_CASES_H
#define IPC_CASES_H

#define IPC_CASES                                                                                \
    /* handles.c */                                                                              \
    CASE(blocks, "200 blocks of mixed sizes, each opens as itself")                              \
    CASE(three_opens, "one handle opened three times, closed four times")                        \
    CASE(neighbours, "two blocks side by side, closed in either order")                          \
    CASE(interior, "exported by an inner address")                                               \
    CASE(lifetimes, "one handle a lifetime")                                                     \
    CASE(freed, "freed before it is opened")                                                     \
    CASE(freed_open, "freed while it is open")                                                   \
    CASE(own, "opened where it was exported")                                                    \
    CASE(arguments, "wrong arguments, damaged handles")                                          \
    CASE(three_processes, "passed on to a third process, exported again")                        \
    CASE(memory_used, "what 1,000 exports of 4 KiB take")                                        \
    /* ends.c */                                                                                 \
    CASE(exporter_ended, "the exporter ends before it is opened")                                \
    CASE(exporter_killed, "the exporter is killed while it is open")                             \
    CASE(exporter_stopped, "the exporter is stopped")                                            \
    CASE(importer_killed, "importers with 1,000 open blocks are killed")                         \
    CASE(mixed_out, "exported with the library, opened without it")                              \
    CASE(mixed_in, "exported without the library, opened with it")                               \
    CASE(devices, "another device is current")                                                   \
    CASE(contexts, "a context ends with open blocks; a reset")                                   \
    CASE(forked, "a child of the exporter")                                                      \
    CASE(executed, "the exporter executes a program")                                            \
    CASE(producer, "the producer ends before the consumer closes")                               \
    /* order.c */                                                                                \
    CASE(events, "an event recorded here, waited for there")                                     \
    CASE(events_back, "an event recorded there, waited for here")                                \
    CASE(events_gone, "an event whose maker or recorder is gone")                                \
    CASE(race_freed, "freed while another process works on it is reported")                      \
    CASE(race_used, "work on what was freed is reported")                                        \
    CASE(race_none, "what was synchronised is not reported")                                     \
    CASE(race_events, "what an event orders is not reported")                                    \
    CASE(race_killed, "the work of a killed process is over")                                    \
    /* caches.c */                                                                               \
    CASE(cache_ucx, "UCX's cache of mappings, by base, size and id")                             \
    CASE(cache_id, "MPICH's and libfabric's check of ids")                                       \
    CASE(cache_handle, "PyTorch's and NCCL's cache by handle")

#define CASE(name, what) void case_##name(void);
IPC_CASES
#undef CASE

#endif
