/* Measuring for `ecfs tune`: every setting of an endpoint gets the same load, the one a file of eight stripes makes. */
#include "measure/codec_bench.h"
#include "measure/measure.h"
#include "measure/tune.h"
#include "util/lock.h"

#include <openssl/evp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define N_FILES          8
#define PROBE_BYTES      (64u << 10)
#define N_ROUNDS         2
#define LOAD_STEP        4
#define LOAD_MAX_S       3    /* that moving it one way may take, about */
#define LONG_LINE_S      0.02 /* the processor is not what limits these */
#define WARM_BYTES       (16u << 10)
#define PATIENCE_US      (12 * G_USEC_PER_SEC)
#define CODEC_ROUND_US   5000
#define CIPHER_US        50000
#define CIPHER_BYTES     (32 << 10) /* of an SSH packet */
#define SEGMENT_SMALLEST (512u << 10)

/* What is the same for all trials of an endpoint. */
typedef struct Place {
    const EcfsEndpointSpec *spec;
    EcfsMarker expected;
    TuneEndpoint *results;
    size_t max_load_bytes;
    size_t load_bytes;
} Place;

static double used_s (int who)
{
    struct rusage used;
    (void) getrusage (who, &used); /* fails for no one whom there is */
    return (double) (used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double) (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static double all_used_s (void)
{
    return used_s (RUSAGE_SELF) + used_s (RUSAGE_CHILDREN);
}

static EcfsEndpoint *open_with (const Place *place, unsigned connections, const char *transport, GError **error)
{
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_copy (place->spec);
    if (spec->options == NULL)
        spec->options = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
    if (connections > 0)
        g_hash_table_insert (spec->options, g_strdup ("connections"), g_strdup_printf ("%u", connections));
    if (transport != NULL)
        g_hash_table_insert (spec->options, g_strdup ("transport"), g_strdup (transport));
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &place->expected, error);
    ecfs_endpoint_spec_free (spec);
    if (endpoint != NULL)
        ecfs_endpoint_start (endpoint);
    return endpoint;
}

static bool write_and_read (EcfsEndpoint *endpoint, const MeasureFiles *files, TuneTrial *trial, GError **error)
{
    if (!measure_write (endpoint, files, PATIENCE_US, &trial->write_bytes_per_s, error))
        return false;
    bool good = measure_read (endpoint, files, PATIENCE_US, &trial->read_bytes_per_s, error);
    return measure_remove (endpoint, files, good ? error : NULL) && good;
}

/* Finds a load that takes a moment: a long line shows what it can only when much is under way. */
static bool find_load (Place *place, EcfsEndpoint *endpoint, GError **error)
{
    for (size_t bytes = TUNE_LOAD_MIN;; bytes = MIN (LOAD_STEP * bytes, place->max_load_bytes)) {
        g_autoptr (MeasureFiles) files = measure_files_new (N_FILES, bytes / N_FILES);
        TuneTrial trial;
        if (!write_and_read (endpoint, files, &trial, error))
            return false;
        double seconds = (double) bytes / MAX (trial.read_bytes_per_s, trial.write_bytes_per_s);
        place->load_bytes = bytes;
        if (bytes >= place->max_load_bytes || LOAD_STEP * seconds > LOAD_MAX_S)
            return true;
    }
}

static bool probe (Place *place, GError **error)
{
    g_autoptr (MeasureFiles) file = measure_files_new (1, PROBE_BYTES);
    g_autoptr (EcfsEndpoint) endpoint = open_with (place, 0, NULL, error);
    double bytes_per_s;
    if (endpoint == NULL || !measure_write (endpoint, file, PATIENCE_US, &bytes_per_s, error))
        return false;
    bool good = measure_round_trip (endpoint, file, &place->results->round_trip_s, error);
    return measure_remove (endpoint, file, good ? error : NULL) && good && find_load (place, endpoint, error);
}

/* Makes connections, then moves the load so often; the better rates count, as others use line and machine as well.
 * Returns the seconds of processor that all took, with those of programs that were started; -1: @error. */
static double run_trial (const Place *place, TuneTrial *trial, unsigned n_rounds, GError **error)
{
    TuneTrial round;
    g_autoptr (MeasureFiles) few = measure_files_new (N_FILES, WARM_BYTES);
    g_autoptr (MeasureFiles) files = measure_files_new (N_FILES, place->load_bytes / N_FILES);
    double before_s = all_used_s ();
    EcfsEndpoint *endpoint = open_with (place, trial->connections, trial->transport, error);
    bool good = endpoint != NULL && write_and_read (endpoint, few, &round, error);
    for (unsigned i = 0; i < n_rounds && good; i++) {
        good = write_and_read (endpoint, files, &round, error);
        trial->read_bytes_per_s = MAX (trial->read_bytes_per_s, round.read_bytes_per_s);
        trial->write_bytes_per_s = MAX (trial->write_bytes_per_s, round.write_bytes_per_s);
    }
    ecfs_endpoint_free (endpoint); /* programs that it started have ended now */
    return good ? all_used_s () - before_s : -1;
}

/* What connections cost, and not what moving bytes does, is taken off where the processor is of interest. */
static bool try_setting (const Place *place, unsigned connections, const char *transport, GError **error)
{
    TuneTrial trial = {.connections = connections, .transport = transport};
    bool cpu_wanted = transport != NULL && place->results->round_trip_s < LONG_LINE_S;
    double idle_s = cpu_wanted ? run_trial (place, &trial, 0, error) : 0;
    double used_up_s = idle_s < 0 ? -1 : run_trial (place, &trial, N_ROUNDS, error);
    if (used_up_s < 0)
        return false;
    double moved_gib = 2.0 * N_ROUNDS * (double) place->load_bytes / (1 << 30);
    if (cpu_wanted)
        trial.cpu_s_per_gib = MAX (used_up_s - idle_s, 0) / moved_gib;
    place->results->trials[place->results->n_trials++] = trial;
    return true;
}

static const TuneTrial *fastest (const TuneEndpoint *endpoint)
{
    const TuneTrial *best = &endpoint->trials[0];
    for (unsigned i = 1; i < endpoint->n_trials; i++)
        if (endpoint->trials[i].read_bytes_per_s + endpoint->trials[i].write_bytes_per_s >
            best->read_bytes_per_s + best->write_bytes_per_s)
            best = &endpoint->trials[i];
    return best;
}

/* Both carriers, with as many connections as did best; that it does not work here is no failure. */
static void try_transports (const Place *place)
{
    static const char *const transports[] = {"openssh", "libssh2"};
    unsigned connections = fastest (place->results)->connections;
    for (size_t i = 0; i < G_N_ELEMENTS (transports); i++) {
        g_autoptr (GError) error = NULL;
        if (!try_setting (place, connections, transports[i], &error))
            g_info ("%s is not measured with transport = %s: %s", place->results->name, transports[i], error->message);
    }
}

static bool try_all (Place *place, GError **error)
{
    static const unsigned counts[] = {1, 2, 4};
    TuneEndpoint *results = place->results;
    if (!probe (place, error) || !try_setting (place, results->connections, NULL, error))
        return false;
    for (size_t i = 0; results->has_connections && i < G_N_ELEMENTS (counts); i++)
        if (counts[i] != results->connections && !try_setting (place, counts[i], NULL, error))
            return false;
    if (results->transport != NULL)
        try_transports (place);
    return true;
}

static const char *option_of (const EcfsEndpointSpec *spec, const char *key)
{
    return spec->options == NULL ? NULL : g_hash_table_lookup (spec->options, key);
}

static void measure_endpoint (const EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, size_t max_load_bytes,
                              TuneEndpoint *results)
{
    const EcfsConfigEndpoint *config = ecfs_config_endpoint (ecfs_archive_config (archive), endpoint->name);
    Place place = {.spec = config->spec,
                   .expected = {.archive = *ecfs_catalog_archive (ecfs_archive_catalog ((EcfsArchive *) archive)),
                                .endpoint = endpoint->uuid},
                   .results = results,
                   .max_load_bytes = max_load_bytes};
    const char *connections = option_of (config->spec, "connections");
    const char *transport = option_of (config->spec, "transport");
    bool has_transports = g_strv_contains (ecfs_endpoint_option_keys (config->spec->url), "transport");
    *results =
        (TuneEndpoint){.name = endpoint->name,
                       .url = config->spec->url,
                       .has_connections = has_transports,
                       .connections = connections != NULL ? (unsigned) g_ascii_strtoull (connections, NULL, 10)
                                                          : ecfs_endpoint_default_connections (config->spec->url),
                       .transport = !has_transports     ? NULL
                                    : transport != NULL ? transport
                                                        : "auto"};
    g_autoptr (GError) error = NULL;
    if (!try_all (&place, &error))
        results->error = g_utf8_make_valid (error->message, -1);
}

static bool measure_codec (TuneMachine *machine, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (machine->code, error);
    if (codec == NULL)
        return false;
    machine->k = ecfs_codec_k (codec);
    machine->n = ecfs_codec_n (codec);
    unsigned n_lost = MIN (ecfs_codec_tolerance (codec), machine->k);
    for (unsigned i = 0; i < TUNE_N_SEGMENTS; i++) {
        CodecRates rates;
        machine->segment_bytes[i] = (uint64_t) SEGMENT_SMALLEST << i;
        uint64_t packet_bytes = MAX (machine->segment_bytes[i] / machine->k, 1);
        (void) codec_bench (codec, packet_bytes, 0, CODEC_ROUND_US, &rates); /* sizes nearly as asked for */
        machine->encode_bytes_per_s[i] = rates.ecfs * 1e9;
        (void) codec_bench (codec, packet_bytes, n_lost, CODEC_ROUND_US, &rates);
        machine->decode_bytes_per_s[i] = rates.ecfs * 1e9;
    }
    return true;
}

/* Bytes per second that one core encrypts; 0: this libcrypto does not have it. */
static double cipher_rate (const EVP_CIPHER *cipher)
{
    static uint8_t bytes[CIPHER_BYTES + EVP_MAX_BLOCK_LENGTH];
    const uint8_t key[EVP_MAX_KEY_LENGTH] = {1}, iv[EVP_MAX_IV_LENGTH] = {2};
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new ();
    int size;
    uint64_t n = 0;
    int64_t begin_us = ecfs_now_us ();
    bool good = context != NULL && EVP_EncryptInit_ex (context, cipher, NULL, key, iv) == 1;
    while (good && ecfs_now_us () - begin_us < CIPHER_US) {
        good = EVP_EncryptUpdate (context, bytes, &size, bytes, CIPHER_BYTES) == 1;
        n++;
    }
    EVP_CIPHER_CTX_free (context);
    return good ? (double) n * CIPHER_BYTES / measure_seconds_since (begin_us) : 0;
}

static bool measure_machine (const EcfsArchive *archive, TuneMachine *machine, GError **error)
{
    struct sysinfo info;
    machine->code = ecfs_archive_config (archive)->code;
    machine->memory_bytes = sysinfo (&info) == 0 ? (uint64_t) info.totalram * info.mem_unit : 0;
    machine->ciphers[0] = "aes128-gcm@openssh.com";
    machine->cipher_bytes_per_s[0] = cipher_rate (EVP_aes_128_gcm ());
    machine->ciphers[1] = "chacha20-poly1305@openssh.com";
    machine->cipher_bytes_per_s[1] = cipher_rate (EVP_chacha20_poly1305 ());
    return measure_codec (machine, error);
}

TuneFigures *tune_measure (const EcfsArchive *archive, size_t max_load_bytes,
                           void (*progress) (void *user, const char *what), void *user, GError **error)
{
    g_autoptr (TuneFigures) figures = g_new0 (TuneFigures, 1);
    size_t n = ecfs_archive_n_endpoints (archive);
    figures->endpoints = g_new0 (TuneEndpoint, n);
    progress (user, "this machine");
    if (!measure_machine (archive, &figures->machine, error))
        return NULL;
    for (size_t i = 0; i < n; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (endpoint->endpoint == NULL || endpoint->state != ECFS_ENDPOINT_ACTIVE)
            continue;
        g_autofree char *what = g_strdup_printf ("endpoint %s, %zu of %zu", endpoint->name, i + 1, n);
        progress (user, what);
        measure_endpoint (archive, endpoint, max_load_bytes, &figures->endpoints[figures->n_endpoints++]);
    }
    return g_steal_pointer (&figures);
}

void tune_figures_free (TuneFigures *figures)
{
    if (figures == NULL)
        return;
    for (unsigned i = 0; i < figures->n_endpoints; i++)
        g_free (figures->endpoints[i].error);
    g_free (figures->endpoints);
    g_free (figures);
}
