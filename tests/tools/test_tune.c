/* What `ecfs tune` proposes, by figures. */
#include "../../tools/measure/tune.h"
#include "../../tools/tool.h"

#include <math.h>

#define MB  1e6
#define KIB UINT64_C (1024)

typedef struct World {
    EcfsConfig *config;
    TuneEndpoint endpoint;
    TuneFigures figures;
} World;

/* One endpoint at 10 MB/s in both directions whatever is tried, a code that is never in the way. */
static void set_up (World *self, gconstpointer unused)
{
    static const unsigned counts[] = {3, 1, 2, 4};
    (void) unused;
    self->config = ecfs_config_new ();
    self->endpoint = (TuneEndpoint){.name = "a",
                                    .url = "sftp://host/srv",
                                    .has_connections = true,
                                    .connections = 3,
                                    .transport = "auto",
                                    .round_trip_s = 0.001,
                                    .n_trials = G_N_ELEMENTS (counts)};
    for (size_t i = 0; i < G_N_ELEMENTS (counts); i++)
        self->endpoint.trials[i] =
            (TuneTrial){.connections = counts[i], .read_bytes_per_s = 10 * MB, .write_bytes_per_s = 10 * MB};
    TuneMachine machine = {.code = "rs:4+2", .k = 4, .n = 6, .memory_bytes = UINT64_C (8) << 30};
    for (unsigned i = 0; i < TUNE_N_SEGMENTS; i++) {
        machine.segment_bytes[i] = 512 * KIB << i;
        machine.encode_bytes_per_s[i] = machine.decode_bytes_per_s[i] = 20e9;
    }
    self->figures = (TuneFigures){.machine = machine, .endpoints = &self->endpoint, .n_endpoints = 1};
}

static void tear_down (World *self, gconstpointer unused)
{
    (void) unused;
    ecfs_config_free (self->config);
}

static void set_rates (World *self, unsigned connections, double bytes_per_s)
{
    for (unsigned i = 0; i < self->endpoint.n_trials; i++)
        if (self->endpoint.trials[i].connections == connections)
            self->endpoint.trials[i].read_bytes_per_s = self->endpoint.trials[i].write_bytes_per_s = bytes_per_s;
}

/* "section key=value; ..." */
static void assert_proposed (World *self, const char *expected)
{
    g_autoptr (GPtrArray) proposals = tune_propose (self->config, &self->figures);
    g_autoptr (GString) text = g_string_new (NULL);
    for (unsigned i = 0; i < proposals->len; i++) {
        const TuneProposal *proposal = g_ptr_array_index (proposals, i);
        g_string_append_printf (text, "%s%s %s=%s", i > 0 ? "; " : "", proposal->change.section, proposal->change.key,
                                proposal->change.value);
        g_assert_true (strlen (proposal->now) > 0 && strlen (proposal->reason) > 0);
    }
    g_assert_cmpstr (text->str, ==, expected);
}

static void test_connections (World *self, gconstpointer unused)
{
    (void) unused;
    assert_proposed (self, "endpoint a connections=1"); /* more bring nothing */
    set_rates (self, 1, 5 * MB);
    set_rates (self, 2, 9 * MB);
    assert_proposed (self, "");
    set_rates (self, 4, 13 * MB);
    assert_proposed (self, "endpoint a connections=4");
    set_rates (self, 4, 10.8 * MB); /* may be noise */
    assert_proposed (self, "");
    self->endpoint.error = (char *) "it does not answer";
    set_rates (self, 4, 13 * MB);
    assert_proposed (self, "");
}

static void test_transport (World *self, gconstpointer unused)
{
    (void) unused;
    self->endpoint.n_trials = 3;
    self->endpoint.trials[1] = self->endpoint.trials[2] = self->endpoint.trials[0];
    TuneTrial *program = &self->endpoint.trials[1], *built_in = &self->endpoint.trials[2];
    program->transport = "openssh";
    program->cpu_s_per_gib = 2;
    built_in->transport = "libssh2";
    built_in->cpu_s_per_gib = 3;
    assert_proposed (self, "");
    built_in->read_bytes_per_s = 15 * MB;
    assert_proposed (self, "endpoint a transport=libssh2");
    self->endpoint.transport = "libssh2";
    assert_proposed (self, "");
    built_in->read_bytes_per_s = 10 * MB;
    assert_proposed (self, "endpoint a transport=openssh"); /* as fast, and cheaper */
    built_in->cpu_s_per_gib = program->cpu_s_per_gib = 0;   /* not measured */
    assert_proposed (self, "");
}

static void test_segments (World *self, gconstpointer unused)
{
    (void) unused;
    set_rates (self, 3, 50 * MB);
    assert_proposed (self, "");
    self->endpoint.round_trip_s = 0.2; /* 10 MB in flight: packets of 1.25 MB */
    assert_proposed (self, "archive segment_size=8192K");
    self->config->segment_size = 32768 * KIB;
    self->config->transfer_memory = UINT64_C (1) << 30;
    assert_proposed (self, ""); /* larger than any that is measured, and large enough */
    self->endpoint.round_trip_s = 0.001;
    self->config->segment_size = 512 * KIB;
    self->figures.machine.encode_bytes_per_s[0] = 0.1e9; /* slower than the line, and others are faster */
    assert_proposed (self, "archive segment_size=1024K");
    self->figures.machine.encode_bytes_per_s[0] = 1e9; /* ten times the line is enough */
    assert_proposed (self, "");
}

static void test_memory (World *self, gconstpointer unused)
{
    (void) unused;
    set_rates (self, 3, 50 * MB);
    self->config->transfer_memory = UINT64_C (16) << 20;
    assert_proposed (self, "archive transfer_memory=64M"); /* 16 segments of 3 MiB with parity */
    self->figures.machine.memory_bytes = UINT64_C (128) << 20;
    assert_proposed (self, "archive transfer_memory=32M"); /* a quarter of what there is */
    self->figures.machine.memory_bytes = 0;
    assert_proposed (self, "");
}

/* Figures that no machine has do no harm. */
static void test_extremes (World *self, gconstpointer unused)
{
    (void) unused;
    set_rates (self, 3, 1e30);
    self->endpoint.round_trip_s = 1e9;
    g_autoptr (GPtrArray) huge = tune_propose (self->config, &self->figures);
    g_assert_cmpuint (huge->len, <=, 4);
    self->endpoint.n_trials = 0;
    assert_proposed (self, "");
    self->figures.n_endpoints = 0;
    assert_proposed (self, "");
}

#define ADD(name, test) g_test_add ("/tune/" name, World, NULL, set_up, test, tear_down)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ADD ("proposes-connections", test_connections);
    ADD ("proposes-a-transport", test_transport);
    ADD ("proposes-segments-that-fill-the-line", test_segments);
    ADD ("proposes-memory-for-what-is-under-way", test_memory);
    ADD ("bears-impossible-figures", test_extremes);
    return g_test_run ();
}
