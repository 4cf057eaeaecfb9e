/* Programs: the XORs that give wanted packets from those present. */
#include "codec/solve.h"

#include <assert.h>
#include <string.h>

#define NO_PACKET UINT16_MAX

typedef struct BinaryPlan {
    EcfsPlan base;
    EcfsProgram *program;
} BinaryPlan;

typedef struct Builder {
    const EcfsSolve *solve;
    const EcfsBinary *code;
    const bool *wanted;
    bool whole; /* every part of an unknown packet is summed up from packets; or from sums of equations, made before */
    bool needed[ECFS_CODEC_MAX_N];       /* lost packets that steps compute */
    bool recoded[ECFS_CODEC_MAX_N];      /* of those, parity packets that are summed up from their members */
    uint16_t place[ECFS_CODEC_MAX_N];    /* where they are: themselves, or scratch */
    EcfsUnit unstored[ECFS_CODEC_MAX_N]; /* scratch with a packet's last coefficient; NO_PACKET: not made yet */
    EcfsProgram *program;
} Builder;

/* What a step adds up: coefficients of packets, where two equal ones make none. */
typedef struct Terms {
    bool set[ECFS_CODEC_MAX_N][ECFS_PROGRAM_MAX_PARTS + 1];
    unsigned n_coefficients; /* of a packet: 1, or parts + 1 */
} Terms;

static void toggle_members (const Builder *self, Terms *terms, unsigned parity, unsigned part)
{
    const EcfsBinary *code = self->code;
    for (unsigned i = 0; i < code->base.k; i++)
        if (code->rotation[parity][i] >= 0 && ecfs_packets_has (&self->solve->known, i))
            terms->set[i][ecfs_rotated (code, part, code->rotation[parity][i])] ^= true;
}

static EcfsUnit unit (const Builder *self, unsigned packet, unsigned part)
{
    unsigned at = self->needed[packet] ? self->place[packet] : packet;
    return (EcfsUnit){.packet = (uint16_t) at, .part = (uint16_t) part};
}

/* The last coefficient is the XOR of the others: made once for all steps that need it. */
static void make_unstored (Builder *self, unsigned packet)
{
    if (self->unstored[packet].packet != NO_PACKET)
        return;
    self->unstored[packet] = ecfs_program_scratch (self->program);
    ecfs_program_begin (self->program, self->unstored[packet]);
    for (unsigned part = 0; part < self->code->parts; part++)
        ecfs_program_add (self->program, unit (self, packet, part));
}

static void emit (Builder *self, const Terms *terms, EcfsUnit to)
{
    unsigned n = self->code->base.n, parts = self->code->parts;
    for (unsigned i = 0; i < n && terms->n_coefficients > 1; i++)
        if (terms->set[i][parts])
            make_unstored (self, i);
    ecfs_program_begin (self->program, to);
    for (unsigned i = 0; i < n; i++)
        for (unsigned part = 0; part < terms->n_coefficients; part++)
            if (terms->set[i][part])
                ecfs_program_add (self->program, part < parts ? unit (self, i, part) : self->unstored[i]);
}

static Terms no_terms (const Builder *self)
{
    return (Terms){.n_coefficients = self->code->parts == 1 ? 1 : self->code->parts + 1};
}

/* A data packet as what its one equation says: the sum, rotated back. */
static void emit_peeled (Builder *self, unsigned data, unsigned parity)
{
    const EcfsBinary *code = self->code;
    int rotation = code->rotation[parity][data];
    for (unsigned part = 0; part < code->parts; part++) {
        Terms terms = no_terms (self);
        unsigned coefficient = code->parts == 1 ? 0 : (part + (unsigned) rotation) % (code->parts + 1);
        toggle_members (self, &terms, parity, coefficient);
        terms.set[data][part] = false;
        terms.set[code->base.k + parity][coefficient] ^= true;
        emit (self, &terms, unit (self, data, part));
    }
}

static void emit_recoded (Builder *self, unsigned parity)
{
    for (unsigned part = 0; part < self->code->parts; part++) {
        Terms terms = no_terms (self);
        for (unsigned i = 0; i < self->code->base.k; i++)
            if (self->code->rotation[parity][i] >= 0)
                terms.set[i][ecfs_rotated (self->code, part, self->code->rotation[parity][i])] = true;
        emit (self, &terms, unit (self, self->code->base.k + parity, part));
    }
}

/* Elimination */

typedef uint64_t Sum[ECFS_SOLVE_MAX_ROWS / 64];

static bool is_target (const Builder *self, unsigned packet)
{
    if (!self->needed[packet] || self->recoded[packet])
        return false;
    return packet >= self->code->base.k || !ecfs_packets_has (&self->solve->known, packet);
}

static bool in_sum (const uint64_t *sum, unsigned i)
{
    return sum[i / 64] >> i % 64 & 1;
}

static void toggle_equation (const Builder *self, Terms *terms, unsigned i)
{
    unsigned parity = self->solve->equations[i / self->code->parts], part = i % self->code->parts;
    toggle_members (self, terms, parity, part);
    terms->set[self->code->base.k + parity][part] ^= true;
}

/* The known parts of the equations that targets use, each summed up in scratch. */
static void emit_equations (Builder *self, EcfsUnit *units)
{
    const EcfsSolve *solve = self->solve;
    unsigned parts = self->code->parts, n_sums = solve->n_equations * parts;
    Sum used = {0}, sum;
    for (unsigned i = 0; i < self->code->base.n; i++)
        for (unsigned part = 0; part < parts && is_target (self, i); part++) {
            (void) ecfs_solve_target (solve, i, part, sum); /* known to be determined */
            for (unsigned word = 0; word < G_N_ELEMENTS (sum); word++)
                used[word] |= sum[word];
        }
    for (unsigned i = 0; i < n_sums; i++) {
        if (!in_sum (used, i))
            continue;
        Terms terms = no_terms (self);
        toggle_equation (self, &terms, i);
        EcfsUnit to = ecfs_program_scratch (self->program);
        emit (self, &terms, to);
        units[i] = to;
    }
}

static void emit_target (Builder *self, unsigned packet, unsigned part, const EcfsUnit *units)
{
    const EcfsSolve *solve = self->solve;
    unsigned n_sums = solve->n_equations * self->code->parts;
    Terms terms = no_terms (self);
    Sum sum;
    (void) ecfs_solve_target (solve, packet, part, sum);
    if (packet >= self->code->base.k)
        toggle_members (self, &terms, packet - self->code->base.k, part);
    for (unsigned i = 0; i < n_sums && self->whole; i++)
        if (in_sum (sum, i))
            toggle_equation (self, &terms, i);
    emit (self, &terms, unit (self, packet, part));
    for (unsigned i = 0; i < n_sums && !self->whole; i++)
        if (in_sum (sum, i))
            ecfs_program_add (self->program, units[i]);
}

static void emit_eliminated (Builder *self)
{
    g_autofree EcfsUnit *units = g_new0 (EcfsUnit, ECFS_SOLVE_MAX_ROWS);
    if (!self->whole)
        emit_equations (self, units);
    for (unsigned i = 0; i < self->code->base.n; i++)
        for (unsigned part = 0; part < self->code->parts && is_target (self, i); part++)
            emit_target (self, i, part, units);
}

/* What is needed */

static bool is_determined (const EcfsSolve *solve, unsigned packet)
{
    for (unsigned part = 0; part < solve->code->parts; part++)
        if (!ecfs_solve_target (solve, packet, part, NULL))
            return false;
    return true;
}

static bool are_members_determined (const Builder *self, unsigned parity)
{
    for (unsigned i = 0; i < self->code->base.k; i++)
        if (self->code->rotation[parity][i] >= 0 && !is_determined (self->solve, i))
            return false;
    return true;
}

/* Marks what the sum of an equation or of a parity packet's members reads and is lost. */
static void need_members (Builder *self, unsigned parity, bool known_only)
{
    for (unsigned i = 0; i < self->code->base.k; i++)
        if (self->code->rotation[parity][i] >= 0 && !ecfs_packets_has (&self->solve->present, i) &&
            (!known_only || ecfs_packets_has (&self->solve->known, i)))
            self->needed[i] = true;
}

static void need_for_targets (Builder *self)
{
    const EcfsSolve *solve = self->solve;
    Sum sum;
    for (unsigned i = 0; i < self->code->base.n; i++)
        for (unsigned part = 0; part < self->code->parts && is_target (self, i); part++) {
            if (i >= self->code->base.k)
                need_members (self, i - self->code->base.k, true);
            (void) ecfs_solve_target (solve, i, part, sum);
            for (unsigned j = 0; j < solve->n_equations * self->code->parts; j++)
                if (in_sum (sum, j))
                    need_members (self, solve->equations[j / self->code->parts], true);
        }
}

/* From what is wanted back to what that takes; false when something is not determined. */
static bool find_needed (Builder *self)
{
    const EcfsCodec *base = &self->code->base;
    for (unsigned i = 0; i < base->n; i++) {
        self->needed[i] |= self->wanted[i];
        if (self->wanted[i] && !is_determined (self->solve, i))
            return false;
        self->recoded[i] = self->wanted[i] && i >= base->k && are_members_determined (self, i - base->k);
        if (self->recoded[i])
            need_members (self, i - base->k, false);
    }
    need_for_targets (self);
    for (unsigned i = self->solve->n_peeled; i-- > 0;)
        if (self->needed[self->solve->peeled[i].data]) {
            unsigned parity = self->solve->peeled[i].parity;
            for (unsigned earlier = 0; earlier < i; earlier++)
                if (self->code->rotation[parity][self->solve->peeled[earlier].data] >= 0)
                    self->needed[self->solve->peeled[earlier].data] = true;
        }
    return true;
}

static EcfsProgram *build (Builder *self)
{
    const EcfsCodec *base = &self->code->base;
    self->program = ecfs_program_new (base->n, self->code->parts);
    for (unsigned i = 0; i < base->n; i++) {
        self->unstored[i].packet = NO_PACKET;
        if (self->needed[i])
            self->place[i] = (uint16_t) (self->wanted[i] ? i : ecfs_program_scratch_packet (self->program));
    }
    for (unsigned i = 0; i < self->solve->n_peeled; i++)
        if (self->needed[self->solve->peeled[i].data])
            emit_peeled (self, self->solve->peeled[i].data, self->solve->peeled[i].parity);
    emit_eliminated (self);
    for (unsigned i = base->k; i < base->n; i++)
        if (self->recoded[i])
            emit_recoded (self, i - base->k);
    return self->program;
}

EcfsProgram *ecfs_binary_program (const EcfsBinary *code, const bool *present, const bool *wanted)
{
    g_autofree EcfsSolve *solve = g_new (EcfsSolve, 1);
    ecfs_solve_peel (solve, code, present);
    ecfs_solve_eliminate (solve);
    Builder builder = {.solve = solve, .code = code, .wanted = wanted, .whole = true};
    if (!find_needed (&builder))
        return NULL;
    g_autoptr (EcfsProgram) whole = build (&builder);
    builder.whole = false;
    g_autoptr (EcfsProgram) by_equations = build (&builder);
    bool shorter = ecfs_program_n_terms (whole) <= ecfs_program_n_terms (by_equations);
    return shorter ? g_steal_pointer (&whole) : g_steal_pointer (&by_equations);
}

EcfsPlan *ecfs_binary_plan (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error)
{
    EcfsProgram *program = ecfs_binary_program ((const EcfsBinary *) self, present, wanted);
    if (program == NULL) {
        ecfs_codec_set_undetermined (self, present, error);
        return NULL;
    }
    BinaryPlan *made = g_new0 (BinaryPlan, 1);
    made->program = program;
    ecfs_program_sources (program, made->base.sources);
    return &made->base;
}

void ecfs_binary_run (const EcfsPlan *plan, uint8_t *const *packets, size_t packet_bytes)
{
    ecfs_program_run (((const BinaryPlan *) plan)->program, packets, packet_bytes);
}

void ecfs_binary_plan_clear (EcfsPlan *plan)
{
    ecfs_program_free (((BinaryPlan *) plan)->program);
}
