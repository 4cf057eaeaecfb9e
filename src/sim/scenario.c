#include "sim/scenario.h"

#include "util/units.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define MAX_SERVERS 100000
#define MAX_CELLS   20000000 /* servers times clients */
#define MAX_OBJECTS 100000000
#define MAX_TEXTS   1000
#define MAX_FILE    (1 << 20)
#define YEARS       10
#define MAX_GROUPS  1000

typedef enum FieldKind { FIELD_NUMBER, FIELD_WHOLE, FIELD_SIZE } FieldKind;

/* A key whose value goes to a double at @offset. */
typedef struct Field {
    const char *key;
    FieldKind kind;
    size_t offset;
    double usual, least, most;
} Field;

#define OF(member)  offsetof (EcfsScenario, member)
#define OFS(member) offsetof (EcfsScenarioServers, member)
#define FOREVER     1e9

static const Field scenario_fields[] = {
    {"seed", FIELD_WHOLE, OF (seed), 1, 0, G_MAXUINT32},
    {"repeat", FIELD_WHOLE, OF (repeat), 1, 1, 10000},
    {"limit_s", FIELD_NUMBER, OF (limit_s), 36000, 1, FOREVER},
    {"years", FIELD_NUMBER, OF (years), YEARS, 0.001, 10000},
    {0},
};
static const Field object_fields[] = {
    {"count", FIELD_WHOLE, OF (n_objects), 1, 1, MAX_OBJECTS},
    {"stand_for", FIELD_WHOLE, OF (stand_for), 1, 1, MAX_OBJECTS},
    {"size", FIELD_SIZE, OF (object_bytes), 100 << 20, 1, 1e15},
    {"packet", FIELD_SIZE, OF (packet_bytes), 256 << 10, 512, 1 << 30},
    {"by_lot", FIELD_WHOLE, OF (by_lot), 0, 0, 1},
    {"spread", FIELD_WHOLE, OF (spread), 0, 0, 1},
    {0},
};
static const Field client_fields[] = {
    {"count", FIELD_WHOLE, OF (n_clients), 1, 1, 100000},  {"bandwidth", FIELD_SIZE, OF (client_bandwidth), 0, 0, 1e12},
    {"readahead", FIELD_SIZE, OF (readahead), 0, 0, 1e12}, {"memory", FIELD_SIZE, OF (memory), 256 << 20, 0, 1e12},
    {"decode", FIELD_SIZE, OF (decode), 0, 0, 1e15},       {"pace", FIELD_SIZE, OF (pace), 0, 0, 1e12},
    {"known", FIELD_WHOLE, OF (known), 1, 0, 1},           {0},
};
static const Field zone_fields[] = {
    {"stall_every_s", FIELD_NUMBER, OF (zone_stall_every_s), 0, 0, FOREVER},
    {"stall_for_s", FIELD_NUMBER, OF (zone_stall_for_s), 10, 0, FOREVER},
    {"disaster_every_years", FIELD_NUMBER, OF (disaster_every_years), 0, 0, 1e6},
    {"disaster_share", FIELD_NUMBER, OF (disaster_share), 1, 0, 1},
    {0},
};
static const Field repair_fields[] = {
    {"detect_hours", FIELD_NUMBER, OF (detect_hours), 24, 0, 1e6},
    {"replace_days", FIELD_NUMBER, OF (replace_days), 7, 0, 1e5},
    {0},
};
static const Field server_fields[] = {
    {"count", FIELD_WHOLE, OFS (count), 1, 1, MAX_SERVERS},
    {"bandwidth", FIELD_SIZE, OFS (bandwidth), 10 << 20, 1, 1e12},
    {"spread", FIELD_NUMBER, OFS (spread), 0, 0, 5},
    {"latency_ms", FIELD_NUMBER, OFS (latency_ms), 1, 0, 1e6},
    {"jitter_ms", FIELD_NUMBER, OFS (jitter_ms), 0, 0, 1e6},
    {"delayed", FIELD_NUMBER, OFS (delayed), 0, 0, 1},
    {"delay_ms", FIELD_NUMBER, OFS (delay_ms), 0, 0, 1e6},
    {"change_at_s", FIELD_NUMBER, OFS (change_at_s), -1, 0, FOREVER},
    {"change_until_s", FIELD_NUMBER, OFS (change_until_s), FOREVER, 0, FOREVER},
    {"change_to", FIELD_SIZE, OFS (change_to), 0, 0, 1e12},
    {"stall_every_s", FIELD_NUMBER, OFS (stall_every_s), 0, 0, FOREVER},
    {"stall_for_s", FIELD_NUMBER, OFS (stall_for_s), 10, 0, FOREVER},
    {"zones", FIELD_WHOLE, OFS (zones), 0, 0, MAX_SERVERS},
    {"removed", FIELD_WHOLE, OFS (removed), 0, 0, 1},
    {"mttf_years", FIELD_NUMBER, OFS (mttf_years), 4, 0, 1e6},
    {0},
};

static const struct {
    const char *name;
    const Field *fields;
} sections[] = {{"scenario", scenario_fields}, {"objects", object_fields}, {"clients", client_fields},
                {"zones", zone_fields},        {"repair", repair_fields},  {"compare", NULL}};

static void servers_free (EcfsScenarioServers *self)
{
    g_free (self->name);
    g_free (self);
}

void ecfs_scenario_free (EcfsScenario *self)
{
    if (self == NULL)
        return;
    g_free (self->about);
    g_ptr_array_unref (self->servers);
    g_strfreev (self->codes);
    g_strfreev (self->policies);
    g_strfreev (self->repair_bandwidths);
    g_free (self);
}

static void set_usual (const Field *fields, void *object)
{
    for (const Field *field = fields; field->key != NULL; field++)
        *(double *) (void *) ((char *) object + field->offset) = field->usual;
}

static bool parse_value (const Field *field, const char *text, double *ret_value)
{
    char *end;
    uint64_t bytes;
    if (field->kind == FIELD_SIZE) {
        *ret_value = ecfs_parse_size (text, &bytes) ? (double) bytes : -1;
        return *ret_value >= 0;
    }
    *ret_value = g_ascii_strtod (text, &end);
    return end != text && *end == '\0' && isfinite (*ret_value) &&
           (field->kind != FIELD_WHOLE || *ret_value == floor (*ret_value));
}

static bool parse_field (const Field *fields, const char *section, const char *key, const char *text, void *object,
                         GError **error)
{
    static const char *const kinds[] = {"a number", "a whole number", "a size"};
    double value;
    const Field *field = fields;
    while (field != NULL && field->key != NULL && strcmp (field->key, key) != 0)
        field++;
    if (field == NULL || field->key == NULL)
        return ecfs_fail (error, EINVAL, "[%s] has no key \"%s\"", section, key);
    if (!parse_value (field, text, &value) || value < field->least || value > field->most)
        return ecfs_fail (error, EINVAL, "[%s] %s: \"%s\" is not %s from %g to %g", section, key, text,
                          kinds[field->kind], field->least, field->most);
    *(double *) (void *) ((char *) object + field->offset) = value;
    return true;
}

bool ecfs_scenario_list (const char *text, const char *name, char ***list, GError **error)
{
    g_auto (GStrv) parts = g_strsplit (text, ";", MAX_TEXTS);
    g_autoptr (GStrvBuilder) builder = g_strv_builder_new ();
    unsigned n = 0;
    for (char **part = parts; *part != NULL; part++)
        if (*g_strstrip (*part) != '\0') {
            g_strv_builder_add (builder, *part);
            n++;
        }
    if (n == 0)
        return ecfs_fail (error, EINVAL, "%s is empty", name);
    g_strfreev (*list);
    *list = g_strv_builder_end (builder);
    return true;
}

/* Keys whose values are texts. */
static bool parse_text (EcfsScenario *self, const char *section, const char *key, const char *text, bool *ret_known,
                        GError **error)
{
    *ret_known = true;
    if (strcmp (section, "scenario") == 0 && strcmp (key, "about") == 0) {
        g_free (self->about);
        self->about = g_strdup (text);
        return true;
    }
    if (strcmp (section, "scenario") == 0 && strcmp (key, "kind") == 0) {
        self->is_lifetime = strcmp (text, "lifetime") == 0;
        return self->is_lifetime || strcmp (text, "read") == 0 ||
               ecfs_fail (error, EINVAL, "[scenario] kind: \"%s\" is neither read nor lifetime", text);
    }
    if (strcmp (section, "compare") == 0 && strcmp (key, "codes") == 0)
        return ecfs_scenario_list (text, "[compare] codes", &self->codes, error);
    if (strcmp (section, "compare") == 0 && strcmp (key, "policies") == 0)
        return ecfs_scenario_list (text, "[compare] policies", &self->policies, error);
    if (strcmp (section, "compare") == 0 && strcmp (key, "repair_bandwidths") == 0)
        return ecfs_scenario_list (text, "[compare] repair_bandwidths", &self->repair_bandwidths, error);
    *ret_known = false;
    return true;
}

/* Where a section's keys go; NULL: there is no such section. */
static void *find_section (EcfsScenario *self, const char *section, const Field **ret_fields)
{
    for (size_t i = 0; i < G_N_ELEMENTS (sections); i++)
        if (strcmp (sections[i].name, section) == 0) {
            *ret_fields = sections[i].fields;
            return self;
        }
    if (!g_str_has_prefix (section, "servers ") || self->servers->len >= MAX_GROUPS)
        return NULL;
    EcfsScenarioServers *servers = g_new0 (EcfsScenarioServers, 1);
    servers->name = g_strdup (section + strlen ("servers "));
    set_usual (server_fields, servers);
    g_ptr_array_add (self->servers, servers);
    *ret_fields = server_fields;
    return servers;
}

static bool parse_section (EcfsScenario *self, GKeyFile *file, const char *section, GError **error)
{
    const Field *fields = NULL;
    void *object = find_section (self, section, &fields);
    if (object == NULL)
        return ecfs_fail (error, EINVAL,
                          "there is no section [%s]; there are [scenario], [objects], [clients], [servers NAME], "
                          "[zones], [repair] and [compare]",
                          section);
    g_auto (GStrv) keys = g_key_file_get_keys (file, section, NULL, NULL);
    for (char **key = keys; key != NULL && *key != NULL; key++) {
        bool known;
        g_autofree char *raw = g_key_file_get_value (file, section, *key, NULL);
        const char *text = raw == NULL ? "" : g_strstrip (raw);
        if (!parse_text (self, section, *key, text, &known, error) ||
            (!known && !parse_field (fields, section, *key, text, object, error)))
            return false;
    }
    return true;
}

static double count_servers (const EcfsScenario *self)
{
    double n = 0;
    for (guint i = 0; i < self->servers->len; i++)
        n += ((const EcfsScenarioServers *) g_ptr_array_index (self->servers, i))->count;
    return n;
}

static bool check_texts (const EcfsScenario *self, GError **error)
{
    EcfsReadPolicy policy;
    uint64_t bytes;
    ecfs_read_policy_init (&policy);
    for (char **code = self->codes; *code != NULL; code++)
        if (strchr (*code, ':') == NULL)
            return ecfs_fail (error, EINVAL, "[compare] codes: \"%s\" is not a code", *code);
    for (char **text = self->policies; *text != NULL; text++)
        if (!ecfs_read_policy_parse (*text, &policy, error))
            return ecfs_prefix (error, "[compare] policies: %s", *text);
    for (char **text = self->repair_bandwidths; *text != NULL; text++)
        if (!ecfs_parse_size (*text, &bytes) || bytes == 0)
            return ecfs_fail (error, EINVAL, "[compare] repair_bandwidths: \"%s\" is not a size above 0", *text);
    return true;
}

static bool check_whole (const EcfsScenario *self, GError **error)
{
    double n_servers = count_servers (self);
    if (n_servers == 0)
        return ecfs_fail (error, EINVAL, "it has no [servers NAME]");
    if (n_servers > MAX_SERVERS || n_servers * self->n_clients > MAX_CELLS)
        return ecfs_fail (error, EINVAL, "it has more than %d servers, or %d servers times clients", MAX_SERVERS,
                          MAX_CELLS);
    if (!self->is_lifetime && self->object_bytes * self->n_objects / self->packet_bytes > 1e9)
        return ecfs_fail (error, EINVAL, "it has more than 10^9 packets to read");
    return check_texts (self, error);
}

static EcfsScenario *scenario_new (void)
{
    static const char *const codes[] = {"rs:8+3", NULL}, *const policies[] = {"default", NULL},
                             *const bandwidths[] = {"10M", NULL};
    EcfsScenario *self = g_new0 (EcfsScenario, 1);
    for (size_t i = 0; i < G_N_ELEMENTS (sections); i++)
        if (sections[i].fields != NULL)
            set_usual (sections[i].fields, self);
    self->servers = g_ptr_array_new_with_free_func ((GDestroyNotify) servers_free);
    self->codes = g_strdupv ((char **) codes);
    self->policies = g_strdupv ((char **) policies);
    self->repair_bandwidths = g_strdupv ((char **) bandwidths);
    return self;
}

EcfsScenario *ecfs_scenario_parse (const char *text, const char *name, GError **error)
{
    g_autoptr (GKeyFile) file = g_key_file_new ();
    g_autoptr (GError) wrong = NULL;
    g_autoptr (EcfsScenario) self = scenario_new ();
    if (!g_utf8_validate (text, -1, NULL)) {
        g_set_error (error, ECFS_ERROR, EINVAL, "%s: it is not text", name);
        return NULL;
    }
    if (!g_key_file_load_from_data (file, text, strlen (text), G_KEY_FILE_NONE, &wrong)) {
        g_set_error (error, ECFS_ERROR, EINVAL, "%s: %s", name, wrong->message);
        return NULL;
    }
    g_auto (GStrv) groups = g_key_file_get_groups (file, NULL);
    bool good = true;
    for (char **group = groups; good && *group != NULL; group++)
        good = parse_section (self, file, *group, error);
    if (!good || !check_whole (self, error)) {
        g_prefix_error (error, "%s: ", name);
        return NULL;
    }
    return g_steal_pointer (&self);
}

EcfsScenario *ecfs_scenario_load (const char *path, GError **error)
{
    g_autofree char *text = NULL;
    gsize size;
    g_autoptr (GError) failed = NULL;
    if (!g_file_get_contents (path, &text, &size, &failed)) {
        g_set_error (error, ECFS_ERROR, ENOENT, "%s", failed->message);
        return NULL;
    }
    if (size > MAX_FILE || strlen (text) != size) {
        g_set_error (error, ECFS_ERROR, EINVAL, "%s: it is not a scenario: too large, or not text", path);
        return NULL;
    }
    return ecfs_scenario_parse (text, path, error);
}

/* Running */

static double draw_normal (GRand *random)
{
    return sqrt (-2 * log (1 - g_rand_double (random))) * cos (2 * G_PI * g_rand_double (random));
}

static EcfsSimServer make_server (const EcfsScenarioServers *self, GRand *random)
{
    EcfsSimServer server = ecfs_sim_server ();
    server.bytes_per_s = MAX (self->bandwidth * exp (self->spread * draw_normal (random)), 1);
    server.latency_us = (int64_t) (self->latency_ms * 1e3);
    server.jitter_us = (int64_t) (self->jitter_ms * 1e3);
    server.delayed_share = self->delayed;
    server.delay_us = (int64_t) (self->delay_ms * 1e3);
    server.stalls_every_us = (int64_t) (self->stall_every_s * 1e6);
    server.stalls_for_us = (int64_t) (self->stall_for_s * 1e6);
    server.removed = self->removed > 0;
    if (self->change_at_s >= 0) {
        server.changes_us = (int64_t) (self->change_at_s * 1e6);
        server.until_us = self->change_until_s >= FOREVER ? ECFS_SIM_NEVER : (int64_t) (self->change_until_s * 1e6);
        server.later_bytes_per_s = self->change_to;
    }
    return server;
}

/* The zone of the @i-th server of a group whose zones begin with @first, and how many there are then. */
static unsigned zone_of (const EcfsScenarioServers *self, unsigned first, unsigned i, unsigned *n_zones)
{
    unsigned zone = first + (self->zones > 0 ? i % (unsigned) self->zones : i);
    *n_zones = MAX (*n_zones, zone + 1);
    return zone;
}

/* Servers stand mixed, so that those of one group are not all the first stripes. */
static void shuffle (EcfsSimServer *servers, size_t n, GRand *random)
{
    for (size_t i = n; i > 1; i--) {
        size_t with = g_rand_int (random) % i;
        EcfsSimServer other = servers[with];
        servers[with] = servers[i - 1];
        servers[i - 1] = other;
    }
}

static EcfsSimServer *make_servers (const EcfsScenario *self, uint32_t seed, size_t *ret_n, unsigned *ret_n_zones)
{
    g_autoptr (GArray) servers = g_array_new (FALSE, FALSE, sizeof (EcfsSimServer));
    GRand *random = g_rand_new_with_seed (seed);
    *ret_n_zones = 0;
    for (guint i = 0; i < self->servers->len; i++) {
        const EcfsScenarioServers *group = g_ptr_array_index (self->servers, i);
        unsigned first = *ret_n_zones;
        for (unsigned j = 0; j < (unsigned) group->count; j++) {
            EcfsSimServer server = make_server (group, random);
            server.zone = zone_of (group, first, j, ret_n_zones);
            g_array_append_val (servers, server);
        }
    }
    *ret_n = servers->len;
    if (self->servers->len > 1)
        shuffle ((EcfsSimServer *) (void *) servers->data, servers->len, random);
    g_rand_free (random);
    return (EcfsSimServer *) (void *) g_array_free (g_steal_pointer (&servers), FALSE);
}

bool ecfs_scenario_read (const EcfsScenario *self, const char *code, const char *policy, uint32_t seed,
                         EcfsSimResult *ret_result, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_modelled (code, error);
    EcfsSimModel model;
    unsigned n_zones;
    ecfs_sim_model_init (&model);
    if (codec == NULL || !ecfs_read_policy_parse (policy, &model.policy, error))
        return false;
    g_autofree EcfsSimServer *servers = make_servers (self, seed, &model.n_servers, &n_zones);
    g_autofree EcfsSimZone *zones = g_new (EcfsSimZone, n_zones);
    for (unsigned i = 0; i < n_zones; i++)
        zones[i] = (EcfsSimZone){.stalls_every_us = (int64_t) (self->zone_stall_every_s * 1e6),
                                 .stalls_for_us = (int64_t) (self->zone_stall_for_s * 1e6)};
    double segment = ecfs_codec_k (codec) * self->packet_bytes;
    model.code = code;
    model.n_segments = (uint64_t) ceil (self->object_bytes / segment);
    model.packet_bytes = (uint64_t) self->packet_bytes;
    model.window = (unsigned) MIN (ceil (self->readahead / segment), 1e6);
    model.memory_bytes = (uint64_t) self->memory;
    model.reader_segments_per_s = self->pace / segment;
    model.client_bytes_per_s = self->client_bandwidth;
    model.decode_bytes_per_s = self->decode;
    model.n_clients = (unsigned) self->n_clients;
    model.n_objects = (uint64_t) self->n_objects;
    model.place_by_lot = self->by_lot > 0;
    model.spread = self->spread > 0;
    model.known = self->known > 0;
    model.servers = servers;
    model.zones = zones;
    model.n_zones = n_zones;
    model.seed = seed;
    model.limit_us = (int64_t) (self->limit_s * 1e6);
    return ecfs_sim_run (&model, ret_result, error);
}

bool ecfs_scenario_live (const EcfsScenario *self, const char *code, const char *repair_bandwidth, uint32_t seed,
                         EcfsLifetime *ret_lifetime, GError **error)
{
    g_autoptr (GArray) endpoints = g_array_new (FALSE, FALSE, sizeof (EcfsLifetimeEndpoint));
    unsigned n_zones = 0;
    uint64_t bytes;
    if (!ecfs_parse_size (repair_bandwidth, &bytes))
        return ecfs_fail (error, EINVAL, "\"%s\" is not a size", repair_bandwidth);
    for (guint i = 0; i < self->servers->len; i++) {
        const EcfsScenarioServers *group = g_ptr_array_index (self->servers, i);
        unsigned first = n_zones;
        for (unsigned j = 0; j < (unsigned) group->count; j++) {
            EcfsLifetimeEndpoint endpoint = {.mttf_years = group->mttf_years,
                                             .zone = zone_of (group, first, j, &n_zones)};
            g_array_append_val (endpoints, endpoint);
        }
    }
    EcfsLifetimeModel model = {.code = code,
                               .years = self->years,
                               .n_objects = (uint64_t) ceil (self->n_objects / self->stand_for),
                               .object_bytes = self->object_bytes * self->stand_for,
                               .repair_bytes_per_s = (double) bytes,
                               .detect_hours = self->detect_hours,
                               .replace_days = self->replace_days,
                               .disaster_every_years = self->disaster_every_years,
                               .disaster_share = self->disaster_share,
                               .n_endpoints = endpoints->len,
                               .n_zones = n_zones,
                               .endpoints = (const EcfsLifetimeEndpoint *) (void *) endpoints->data,
                               .seed = seed};
    if (!ecfs_lifetime_run (&model, ret_lifetime, error))
        return false;
    ret_lifetime->n_lost *= (uint64_t) self->stand_for;
    ret_lifetime->n_unrepaired *= (uint64_t) self->stand_for;
    ret_lifetime->n_repairs *= (uint64_t) self->stand_for;
    return true;
}
