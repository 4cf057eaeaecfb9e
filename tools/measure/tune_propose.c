/* What follows from figures: rules that change a setting only where the gain is more than noise. */
#include "measure/tune.h"
#include "tool.h"

#include <inttypes.h>

#define NEARLY       0.95 /* of the best is as good */
#define GAIN         1.10 /* what a setting has to bring */
#define CPU_GAIN     0.80
#define CODEC_NEARLY 0.90
#define CODEC_AHEAD  10 /* times what all lines move: one core has next to nothing to do */
#define PARTS        8  /* packets that are to be as much as a line has in flight */
#define MEMORY_SHARE 4  /* of the machine's memory: one part */

static double speed (const TuneTrial *trial)
{
    return trial->read_bytes_per_s + trial->write_bytes_per_s;
}

static void propose (GPtrArray *proposals, char *section, const char *key, char *value, char *now, char *reason)
{
    TuneProposal *proposal = g_new (TuneProposal, 1);
    *proposal = (TuneProposal){
        .change = {.section = section, .key = g_strdup (key), .value = value}, .now = now, .reason = reason};
    g_ptr_array_add (proposals, proposal);
}

static void proposal_free (void *data)
{
    TuneProposal *proposal = data;
    g_free (proposal->change.section);
    g_free (proposal->change.key);
    g_free (proposal->change.value);
    g_free (proposal->now);
    g_free (proposal->reason);
    g_free (proposal);
}

/* "read 12 MiB/s, write 9 MiB/s"; g_free () */
static char *rates_text (const TuneTrial *trial)
{
    g_autofree char *read = tool_bytes (trial->read_bytes_per_s);
    g_autofree char *write = tool_bytes (trial->write_bytes_per_s);
    return g_strdup_printf ("read %s/s, write %s/s", read, write);
}

static char *section_of (const TuneEndpoint *endpoint)
{
    return g_strconcat ("endpoint ", endpoint->name, NULL);
}

static void propose_connections (GPtrArray *proposals, const TuneEndpoint *endpoint)
{
    const TuneTrial *now = &endpoint->trials[0], *chosen = now;
    double best = 0;
    for (unsigned i = 0; i < endpoint->n_trials; i++)
        if (endpoint->trials[i].transport == NULL)
            best = MAX (best, speed (&endpoint->trials[i]));
    for (unsigned i = 0; i < endpoint->n_trials; i++) {
        const TuneTrial *trial = &endpoint->trials[i];
        bool good = trial->transport == NULL && speed (trial) >= NEARLY * best;
        if (good && (speed (chosen) < NEARLY * best || trial->connections < chosen->connections))
            chosen = trial;
    }
    bool more = chosen->connections > now->connections;
    if (chosen == now || (more && speed (chosen) < GAIN * speed (now)))
        return;
    g_autofree char *then_text = rates_text (chosen), *now_text = rates_text (now),
                    *delay = tool_seconds (endpoint->round_trip_s);
    propose (proposals, section_of (endpoint), "connections", g_strdup_printf ("%u", chosen->connections),
             g_strdup_printf ("%u", now->connections),
             g_strdup_printf ("%s, %s with %u; %s with %u; the round trip takes %s",
                              more ? "the line has room for more" : "more gain nothing", then_text, chosen->connections,
                              now_text, now->connections, delay));
}

static const TuneTrial *with_transport (const TuneEndpoint *endpoint, const char *transport)
{
    for (unsigned i = 0; i < endpoint->n_trials; i++)
        if (g_strcmp0 (endpoint->trials[i].transport, transport) == 0)
            return &endpoint->trials[i];
    return NULL;
}

static void propose_transport (GPtrArray *proposals, const TuneEndpoint *endpoint)
{
    const TuneTrial *program = with_transport (endpoint, "openssh"), *built_in = with_transport (endpoint, "libssh2");
    if (program == NULL || built_in == NULL)
        return;
    bool is_built_in = g_strcmp0 (endpoint->transport, "libssh2") == 0;
    const TuneTrial *now = is_built_in ? built_in : program, *other = is_built_in ? program : built_in;
    bool faster = speed (other) >= GAIN * speed (now);
    bool cheaper = other->cpu_s_per_gib > 0 && speed (other) >= NEARLY * speed (now) &&
                   other->cpu_s_per_gib <= CPU_GAIN * now->cpu_s_per_gib;
    if (!faster && !cheaper)
        return;
    g_autofree char *then_text = rates_text (other), *now_text = rates_text (now);
    propose (proposals, section_of (endpoint), "transport", g_strdup (other->transport), g_strdup (endpoint->transport),
             faster ? g_strdup_printf ("%s with %s; %s with %s", then_text, other->transport, now_text, now->transport)
                    : g_strdup_printf ("%s and %.2g s of processor per GiB with %s; %s and %.2g s with %s", then_text,
                                       other->cpu_s_per_gib, other->transport, now_text, now->cpu_s_per_gib,
                                       now->transport));
}

/* What lines can do at their best. */
typedef struct Lines {
    double longest_bytes; /* in flight on the one with most of them */
    double all_bytes;     /* in flight on all together */
    double bytes_per_s;   /* of all together */
} Lines;

static Lines sum_up (const TuneFigures *figures)
{
    Lines lines = {0};
    for (unsigned i = 0; i < figures->n_endpoints; i++) {
        const TuneEndpoint *endpoint = &figures->endpoints[i];
        double rate = 0;
        for (unsigned j = 0; j < endpoint->n_trials; j++)
            rate = MAX (rate, MAX (endpoint->trials[j].read_bytes_per_s, endpoint->trials[j].write_bytes_per_s));
        lines.longest_bytes = MAX (lines.longest_bytes, rate * endpoint->round_trip_s);
        lines.all_bytes += rate * endpoint->round_trip_s;
        lines.bytes_per_s += rate;
    }
    return lines;
}

static bool fast_enough (const double *rates, unsigned i, const Lines *lines)
{
    double best = 0;
    for (unsigned j = 0; j < TUNE_N_SEGMENTS; j++)
        best = MAX (best, rates[j]);
    return rates[i] >= CODEC_NEARLY * best || rates[i] >= CODEC_AHEAD * lines->bytes_per_s;
}

/* Whether packets are large enough for the longest line, and the code is no slower with them than it matters. */
static bool suits (const TuneMachine *machine, unsigned i, const Lines *lines)
{
    return (double) machine->segment_bytes[i] >= lines->longest_bytes / PARTS * machine->k &&
           fast_enough (machine->encode_bytes_per_s, i, lines) && fast_enough (machine->decode_bytes_per_s, i, lines);
}

/* As it is while that suits, else the smallest that does; returns what it is then. */
static uint64_t propose_segment_size (GPtrArray *proposals, const EcfsConfig *config, const TuneFigures *figures)
{
    const TuneMachine *machine = &figures->machine;
    Lines lines = sum_up (figures);
    unsigned chosen = TUNE_N_SEGMENTS - 1;
    for (unsigned i = TUNE_N_SEGMENTS; i-- > 0;) {
        if (!suits (machine, i, &lines))
            continue;
        chosen = i;
        if (machine->segment_bytes[i] == config->segment_size)
            return config->segment_size;
    }
    uint64_t size = machine->segment_bytes[chosen];
    if (config->segment_size >= size)
        return config->segment_size;
    g_autofree char *line = tool_bytes (lines.longest_bytes);
    g_autofree char *encode = tool_bytes (machine->encode_bytes_per_s[chosen]);
    g_autofree char *decode = tool_bytes (machine->decode_bytes_per_s[chosen]);
    propose (proposals, g_strdup ("archive"), "segment_size", g_strdup_printf ("%" PRIu64 "K", size >> 10),
             g_strdup_printf ("%" PRIu64 "K", config->segment_size >> 10),
             g_strdup_printf ("the longest line has %s in flight, and a packet should be an eighth of that; with it, "
                              "%s encodes %s/s and decodes %s/s",
                              line, machine->code, encode, decode));
    return size;
}

static void propose_memory (GPtrArray *proposals, const EcfsConfig *config, const TuneFigures *figures,
                            uint64_t segment_bytes)
{
    const TuneMachine *machine = &figures->machine;
    double lines = sum_up (figures).all_bytes;
    double stored = (double) segment_bytes * machine->n / machine->k;
    double needed = MAX (TUNE_MIN_SEGMENTS * stored, 2 * lines); /* under way, and read ahead or acknowledged late */
    double limit = (double) machine->memory_bytes / MEMORY_SHARE;
    uint64_t bytes = UINT64_C (16) << 20;
    while ((double) bytes < needed && 2 * (double) bytes <= limit)
        bytes *= 2;
    if (bytes <= config->transfer_memory)
        return;
    g_autofree char *flight = tool_bytes (lines), *memory = tool_bytes ((double) machine->memory_bytes);
    g_autofree char *segment = tool_bytes (stored);
    propose (proposals, g_strdup ("archive"), "transfer_memory", g_strdup_printf ("%" PRIu64 "M", bytes >> 20),
             g_strdup_printf ("%" PRIu64 "M", config->transfer_memory >> 20),
             g_strdup_printf ("all lines together have %s in flight, a segment takes %s, this machine has %s", flight,
                              segment, memory));
}

GPtrArray *tune_propose (const EcfsConfig *config, const TuneFigures *figures)
{
    GPtrArray *proposals = g_ptr_array_new_with_free_func (proposal_free);
    propose_memory (proposals, config, figures, propose_segment_size (proposals, config, figures));
    for (unsigned i = 0; i < figures->n_endpoints; i++) {
        if (figures->endpoints[i].error != NULL || figures->endpoints[i].n_trials == 0)
            continue;
        propose_connections (proposals, &figures->endpoints[i]);
        propose_transport (proposals, &figures->endpoints[i]);
    }
    return proposals;
}
