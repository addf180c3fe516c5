/* Doubly linked lists through their items.  AC_LIST(name, type, link) makes the functions of lists that
 * know only their first item, AC_QUEUE of lists with both ends.  `link` is the prefix of the item's two
 * pointers: with list_ these are list_prev and list_next.
 *
 * AC_CHAIN makes _push and _remove of lists with items that know the pointer which leads to them, in the
 * list or in the item before: with bin_ these are bin_at and bin_next.  Taking an item out is half the
 * work then and does not touch the item before it.
 *
 * An item is in one list of a link at a time; in none its two pointers mean nothing.  The caller holds
 * the lock that guards the list.
 *
 *   name_push(list, item)           first
 *   name_append(list, item)         last: queues only
 *   name_put_after(list, at, item)  behind `at`, which is in the list; NULL: first
 *   name_remove(list, item)
 *
 * The list is a pointer to its first item (`type **`), or a `type_queue_t` of AC_QUEUE_TYPE, which is
 * empty if it is zero. */
#ifndef AC_LIST_H
#define AC_LIST_H

#include <stddef.h>

/* A list may use only some of them. */
#define AC_LIST_FN __attribute__((unused)) static inline void

#define AC_LIST(name, type, link)                                                                \
    AC_LIST_FN name##_put_after(type **first, type *at, type *item) {                            \
        type *next = at ? at->link##next : *first;                                               \
        item->link##prev = at;                                                                   \
        item->link##next = next;                                                                 \
        *(at ? &at->link##next : first) = item;                                                  \
        if (next)                                                                                \
            next->link##prev = item;                                                             \
    }                                                                                            \
    AC_LIST_FN name##_push(type **first, type *item) {                                           \
        name##_put_after(first, NULL, item);                                                     \
    }                                                                                            \
    AC_LIST_FN name##_remove(type **first, type *item) {                                         \
        type *prev = item->link##prev, *next = item->link##next;                                 \
        *(prev ? &prev->link##next : first) = next;                                              \
        if (next)                                                                                \
            next->link##prev = prev;                                                             \
    }

#define AC_CHAIN(name, type, link)                                                               \
    AC_LIST_FN name##_push(type **first, type *item) {                                           \
        type *next = *first;                                                                     \
        item->link##at = first;                                                                  \
        item->link##next = next;                                                                 \
        *first = item;                                                                           \
        if (next)                                                                                \
            next->link##at = &item->link##next;                                                  \
    }                                                                                            \
    AC_LIST_FN name##_remove(type *item) {                                                       \
        type **at = item->link##at, *next = item->link##next;                                    \
        *at = next;                                                                              \
        if (next)                                                                                \
            next->link##at = at;                                                                 \
    }

#define AC_QUEUE_TYPE(type)                                                                      \
    struct {                                                                                     \
        type *first, *last;                                                                      \
    }

#define AC_QUEUE(name, queue, type, link)                                                        \
    AC_LIST_FN name##_put_after(queue *list, type *at, type *item) {                             \
        type *next = at ? at->link##next : list->first;                                          \
        item->link##prev = at;                                                                   \
        item->link##next = next;                                                                 \
        *(at ? &at->link##next : &list->first) = item;                                           \
        *(next ? &next->link##prev : &list->last) = item;                                        \
    }                                                                                            \
    AC_LIST_FN name##_push(queue *list, type *item) {                                            \
        name##_put_after(list, NULL, item);                                                      \
    }                                                                                            \
    AC_LIST_FN name##_append(queue *list, type *item) {                                          \
        name##_put_after(list, list->last, item);                                                \
    }                                                                                            \
    AC_LIST_FN name##_remove(queue *list, type *item) {                                          \
        type *prev = item->link##prev, *next = item->link##next;                                 \
        *(prev ? &prev->link##next : &list->first) = next;                                       \
        *(next ? &next->link##prev : &list->last) = prev;                                        \
    }

#endif
