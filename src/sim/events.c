#include "sim/events.h"

#include <math.h>

#define LONGEST_US 1e18 /* so that no sum of two ends before it began */

int64_t ecfs_sim_span_us (double bytes, double bytes_per_s)
{
    double us = ceil (1e6 * bytes / bytes_per_s);
    return (int64_t) (us < LONGEST_US ? us : LONGEST_US);
}

void ecfs_sim_events_clear (SimEvents *self)
{
    if (self->heap != NULL)
        g_array_unref (self->heap);
    *self = (SimEvents){.n_events = 0};
}

static bool before (const SimEvent *a, const SimEvent *b)
{
    return a->us != b->us ? a->us < b->us : a->number < b->number;
}

void ecfs_sim_events_add (SimEvents *self, int64_t us, unsigned kind, void *subject, uint64_t what)
{
    SimEvent event = {.us = us, .number = self->n_events++, .kind = kind, .subject = subject, .what = what};
    if (self->heap == NULL)
        self->heap = g_array_new (FALSE, FALSE, sizeof (SimEvent));
    g_array_append_val (self->heap, event);
    SimEvent *heap = (SimEvent *) (void *) self->heap->data;
    guint at = self->heap->len - 1;
    for (; at > 0 && before (&event, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = event;
}

bool ecfs_sim_events_take (SimEvents *self, SimEvent *ret_event)
{
    if (self->heap == NULL || self->heap->len == 0)
        return false;
    SimEvent *heap = (SimEvent *) (void *) self->heap->data;
    *ret_event = heap[0];
    guint n = self->heap->len - 1, at = 0;
    SimEvent last = heap[n];
    for (;;) {
        guint child = 2 * at + 1;
        if (child >= n)
            break;
        child += child + 1 < n && before (&heap[child + 1], &heap[child]);
        if (!before (&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    g_array_set_size (self->heap, n);
    return true;
}
