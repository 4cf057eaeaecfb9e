#include "codec/program.h"

#include <assert.h>
#include <string.h>

/* Bytes of a packet that all steps are run on before the next: so that what one step wrote or read is still in the
 * fastest cache for the next one. */
#define STRIP_BYTES   4096
#define SCRATCH_BYTES (ECFS_PROGRAM_MAX_SCRATCH * 256)
#define MAX_PACKETS   (256 + ECFS_PROGRAM_MAX_SCRATCH)
#define MAX_AT_ONCE   64 /* packets that the kernel sums up in one pass */

typedef struct Step {
    EcfsUnit to;
    uint32_t n_from;
} Step;

struct EcfsProgram {
    unsigned n_packets;
    unsigned parts;
    unsigned n_scratch_parts;
    GArray *steps; /* of Step */
    GArray *from;  /* of EcfsUnit, those of the first step first */
    EcfsXorKernel kernel;
};

EcfsProgram *ecfs_program_new (unsigned n_packets, unsigned parts)
{
    assert (n_packets <= 256 && parts >= 1 && parts <= ECFS_PROGRAM_MAX_PARTS);
    EcfsProgram *self = g_new0 (EcfsProgram, 1);
    self->n_packets = n_packets;
    self->parts = parts;
    self->steps = g_array_new (FALSE, FALSE, sizeof (Step));
    self->from = g_array_new (FALSE, FALSE, sizeof (EcfsUnit));
    self->kernel = ecfs_xor_kernel ();
    return self;
}

void ecfs_program_free (EcfsProgram *self)
{
    if (self == NULL)
        return;
    g_array_unref (self->steps);
    g_array_unref (self->from);
    g_free (self);
}

EcfsUnit ecfs_program_scratch (EcfsProgram *self)
{
    unsigned part = self->n_scratch_parts++;
    assert (self->n_scratch_parts <= ECFS_PROGRAM_MAX_SCRATCH * self->parts);
    return (EcfsUnit){.packet = (uint16_t) (self->n_packets + part / self->parts),
                      .part = (uint16_t) (part % self->parts)};
}

unsigned ecfs_program_scratch_packet (EcfsProgram *self)
{
    self->n_scratch_parts = (self->n_scratch_parts + self->parts - 1) / self->parts * self->parts;
    EcfsUnit first = ecfs_program_scratch (self);
    self->n_scratch_parts += self->parts - 1;
    return first.packet;
}

void ecfs_program_begin (EcfsProgram *self, EcfsUnit to)
{
    Step step = {.to = to};
    g_array_append_val (self->steps, step);
}

void ecfs_program_add (EcfsProgram *self, EcfsUnit from)
{
    g_array_append_val (self->from, from);
    g_array_index (self->steps, Step, self->steps->len - 1).n_from++;
}

size_t ecfs_program_n_terms (const EcfsProgram *self)
{
    return self->from->len;
}

void ecfs_program_sources (const EcfsProgram *self, bool *sources)
{
    bool set[256] = {0}; /* a packet is set as a whole, before anything reads it */
    const EcfsUnit *from = (const EcfsUnit *) (void *) self->from->data;
    for (guint i = 0; i < self->steps->len; i++) {
        const Step *step = &g_array_index (self->steps, Step, i);
        for (uint32_t j = 0; j < step->n_from; j++, from++)
            if (from->packet < self->n_packets && !set[from->packet])
                sources[from->packet] = true;
        if (step->to.packet < self->n_packets)
            set[step->to.packet] = true;
    }
}

static size_t strip_bytes (size_t granule, size_t n_scratch)
{
    size_t most = n_scratch == 0 ? STRIP_BYTES : MIN (STRIP_BYTES, SCRATCH_BYTES / n_scratch);
    size_t strip = MAX (most / granule, 1) * granule;
    assert (strip * n_scratch <= SCRATCH_BYTES);
    return strip;
}

/* Sums up one step for n_columns columns; in several passes when it has many terms. */
static void run_step (const EcfsProgram *self, uint8_t *to, const EcfsUnit *from, size_t n_from, uint8_t *const *at,
                      size_t n_columns)
{
    const uint8_t *terms[MAX_AT_ONCE];
    size_t granule = (size_t) self->parts * ECFS_XOR_COLUMN, n_terms = 0;
    for (size_t i = 0; i < n_from; i++) {
        terms[n_terms++] = at[from[i].packet] + (size_t) from[i].part * ECFS_XOR_COLUMN;
        if (n_terms < MAX_AT_ONCE && i + 1 < n_from)
            continue;
        self->kernel (to, terms, n_terms, n_columns, granule);
        terms[0] = to;
        n_terms = 1;
    }
}

static void run_strip (const EcfsProgram *self, uint8_t *const *at, size_t n_columns)
{
    const EcfsUnit *from = (const EcfsUnit *) (void *) self->from->data;
    for (guint i = 0; i < self->steps->len; i++) {
        const Step *step = &g_array_index (self->steps, Step, i);
        if (at[step->to.packet] != NULL)
            run_step (self, at[step->to.packet] + (size_t) step->to.part * ECFS_XOR_COLUMN, from, step->n_from, at,
                      n_columns);
        from += step->n_from;
    }
}

void ecfs_program_run (const EcfsProgram *self, uint8_t *const *packets, size_t packet_bytes)
{
    _Alignas(ECFS_XOR_COLUMN) uint8_t scratch[SCRATCH_BYTES];
    uint8_t *at[MAX_PACKETS];
    size_t n_scratch = (self->n_scratch_parts + self->parts - 1) / self->parts;
    size_t granule = (size_t) self->parts * ECFS_XOR_COLUMN, strip = strip_bytes (granule, n_scratch);
    for (size_t i = 0; i < n_scratch; i++)
        at[self->n_packets + i] = scratch + i * strip;
    for (size_t done = 0; done < packet_bytes; done += strip) {
        for (unsigned i = 0; i < self->n_packets; i++)
            at[i] = packets[i] == NULL ? NULL : packets[i] + done;
        run_strip (self, at, MIN (strip, packet_bytes - done) / granule);
    }
}
