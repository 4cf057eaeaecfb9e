/* What ecfs-fsck tells, as JSON; ecfs-fsck(8) lists the members. */
#include "archive/places_of.h"
#include "fsck/fsck_priv.h"
#include "util/sample.h"

#include <json-glib/json-glib.h>

static char *to_text (JsonObject *object)
{
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    return json_to_string (node, FALSE);
}

static void put_bytes (JsonObject *object, const char *member, const char *bytes)
{
    g_autofree char *shown = g_utf8_make_valid (bytes, -1);
    json_object_set_string_member (object, member, shown);
}

static const char *fault_word (EcfsStripeFault fault)
{
    static const char *const words[] = {
        [ECFS_STRIPE_FINE] = "fine",         [ECFS_STRIPE_ABSENT] = "never stored", [ECFS_STRIPE_GONE] = "gone",
        [ECFS_STRIPE_GIVEN_UP] = "given up", [ECFS_STRIPE_SIZE] = "wrong size",     [ECFS_STRIPE_DAMAGED] = "damaged",
        [ECFS_STRIPE_UNKNOWN] = "unknown",   [ECFS_STRIPE_FORGED] = "damaged",
    };
    return words[fault];
}

static const char *endpoint_name (const EcfsArchive *archive, size_t position)
{
    return position == SIZE_MAX ? "" : ecfs_archive_endpoint (archive, position)->name;
}

static JsonArray *faulty_stripes (const EcfsArchive *archive, const EcfsDamage *damage)
{
    JsonArray *stripes = json_array_new ();
    for (unsigned i = 0; i < damage->n_stripes; i++) {
        const EcfsFaultyStripe *stripe = &damage->stripes[i];
        JsonObject *one = json_object_new ();
        json_object_set_int_member (one, "index", stripe->index);
        json_object_set_string_member (one, "endpoint", endpoint_name (archive, stripe->position));
        json_object_set_string_member (one, "state", fault_word (stripe->fault));
        if (stripe->helps)
            json_object_set_boolean_member (one, "helps", TRUE);
        if (stripe->text != NULL)
            put_bytes (one, "text", stripe->text);
        json_array_add_object_element (stripes, one);
    }
    return stripes;
}

/* A file that has it. */
static char *path_of (EcfsArchive *archive, int64_t object)
{
    uint64_t ino;
    g_autoptr (EcfsObjectRow) past =
        ecfs_object_is_past (object) ? ecfs_catalog_object (ecfs_archive_catalog (archive), object, NULL) : NULL;
    if (past != NULL)
        return ecfs_past_name (&past->uuid);
    if (!ecfs_catalog_object_file (ecfs_archive_catalog (archive), object, &ino, NULL))
        return g_strdup_printf ("object row %" G_GINT64_FORMAT, object);
    return ecfs_catalog_path (ecfs_archive_catalog (archive), ino);
}

/* The path is told already. */
static const char *without_path (const char *message, const char *path)
{
    size_t size = strlen (path);
    bool begins = g_str_has_prefix (message, path) && g_str_has_prefix (message + size, ": ");
    return begins ? message + size + strlen (": ") : message;
}

char *ecfs_fsck_tell_damage (EcfsArchive *archive, const EcfsDamage *damage, EcfsDamageResult result,
                             const EcfsRepairTask *task)
{
    static const char *const results[] = {
        [ECFS_DAMAGE_FOUND] = "found",     [ECFS_DAMAGE_REPAIRED] = "repaired", [ECFS_DAMAGE_LEFT] = "left",
        [ECFS_DAMAGE_UNKNOWN] = "unknown", [ECFS_DAMAGE_CHANGED] = "changed",
    };
    JsonObject *object = json_object_new ();
    g_autofree char *path = path_of (archive, damage->object);
    json_object_set_string_member (object, "about", ecfs_object_is_past (damage->object) ? "history" : "file");
    uint64_t n_files = 1;
    (void) ecfs_catalog_object_files (ecfs_archive_catalog (archive), damage->object, &n_files, NULL); /* else one */
    put_bytes (object, "path", path);
    json_object_set_int_member (object, "files", (int64_t) n_files);
    json_object_set_int_member (object, "object", damage->object);
    json_object_set_int_member (object, "guarantee", damage->guarantee);
    json_object_set_string_member (object, "result", results[result]);
    json_object_set_array_member (object, "stripes", faulty_stripes (archive, damage));
    if (task != NULL) {
        json_object_set_int_member (object, "rebuilt", task->order.n_stored);
        json_object_set_int_member (object, "read_bytes", (int64_t) task->order.read_bytes);
        json_object_set_int_member (object, "written_bytes", (int64_t) task->order.written_bytes);
    }
    if (task != NULL && task->error != NULL)
        put_bytes (object, "reason", without_path (task->error->message, path));
    return to_text (object);
}

static void put_rule (JsonObject *told, EcfsArchive *archive, int64_t object, unsigned n_forbidden)
{
    EcfsRuled ruled;
    if (!ecfs_archive_object_ruled (archive, object, &ruled, NULL)) /* it was read a moment ago */
        return;
    json_object_set_int_member (told, "forbidden", n_forbidden);
    if (ruled.text != NULL)
        put_bytes (told, "rule", ruled.text);
    ecfs_ruled_clear (&ruled);
}

char *ecfs_fsck_tell_crowded (EcfsArchive *archive, int64_t object, const EcfsCrowding *crowding,
                              EcfsCrowdedResult result, const EcfsRepairTask *task)
{
    static const char *const results[] = {
        [ECFS_CROWDED_FOUND] = "found", [ECFS_CROWDED_MOVED] = "moved", [ECFS_CROWDED_LEFT] = "left"};
    JsonObject *told = json_object_new ();
    g_autofree char *path = path_of (archive, object);
    json_object_set_string_member (told, "about", crowding->n_forbidden > 0 ? "misplaced" : "crowded");
    put_bytes (told, "path", path);
    json_object_set_int_member (told, "object", object);
    if (crowding->n_forbidden > 0)
        put_rule (told, archive, object, crowding->n_forbidden);
    json_object_set_int_member (told, "zones", crowding->now.zones);
    json_object_set_int_member (told, "endpoints", crowding->now.endpoints);
    json_object_set_int_member (told, "possible_zones", crowding->reachable.zones);
    json_object_set_int_member (told, "possible_endpoints", crowding->reachable.endpoints);
    json_object_set_int_member (told, "moves", crowding->n_moves);
    json_object_set_int_member (told, "moved", task->order.n_stored);
    json_object_set_int_member (told, "written_bytes", (int64_t) task->order.written_bytes);
    json_object_set_string_member (told, "result", results[result]);
    if (task->error != NULL)
        put_bytes (told, "reason", without_path (task->error->message, path));
    return to_text (told);
}

char *ecfs_fsck_tell_waiting (const EcfsArchive *archive, size_t position, uint64_t n_objects, const char *text)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "about", "waiting");
    json_object_set_string_member (object, "name", endpoint_name (archive, position));
    json_object_set_string_member (object, "zone", ecfs_archive_endpoint (archive, position)->zone);
    json_object_set_int_member (object, "objects", (int64_t) n_objects);
    put_bytes (object, "text", text);
    return to_text (object);
}

char *ecfs_fsck_tell_catalog (const char *path, const char *text)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "about", "catalog");
    if (path != NULL)
        put_bytes (object, "path", path);
    put_bytes (object, "text", text);
    return to_text (object);
}

static void put_counts (JsonObject *object, const EcfsFsckEndpoint *counts)
{
    json_object_set_int_member (object, "stripes", (int64_t) counts->n_stripes);
    json_object_set_int_member (object, "gone", (int64_t) counts->n_gone);
    json_object_set_int_member (object, "damaged", (int64_t) counts->n_damaged);
    json_object_set_int_member (object, "unknown", (int64_t) counts->n_unknown);
    json_object_set_int_member (object, "orphans", (int64_t) counts->n_orphans);
    json_object_set_int_member (object, "orphan_bytes", (int64_t) counts->orphan_bytes);
}

char *ecfs_fsck_tell_export (const EcfsExported *exported)
{
    JsonObject *object = json_object_new ();
    JsonArray *ranges = json_array_new ();
    for (size_t i = 0; i < exported->n_ranges; i++) {
        JsonArray *range = json_array_new ();
        json_array_add_int_element (range, (int64_t) exported->ranges[i].offset);
        json_array_add_int_element (range, (int64_t) exported->ranges[i].length);
        json_array_add_array_element (ranges, range);
    }
    json_object_set_string_member (object, "about", "export");
    put_bytes (object, "path", exported->path);
    if (exported->to != NULL)
        put_bytes (object, "file", exported->to);
    json_object_set_int_member (object, "bytes", (int64_t) exported->bytes);
    json_object_set_int_member (object, "unreadable_bytes", (int64_t) exported->missing_bytes);
    json_object_set_array_member (object, "unreadable", ranges);
    put_bytes (object, "reason", without_path (exported->reason, exported->path));
    return to_text (object);
}

char *ecfs_fsck_tell_prune (const char *text)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "about", "prune");
    put_bytes (object, "text", text);
    return to_text (object);
}

char *ecfs_fsck_tell_unrecovered (const EcfsSpoolObject *unrecovered)
{
    JsonObject *object = json_object_new ();
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&unrecovered->uuid, uuid);
    json_object_set_string_member (object, "about", "unrecovered");
    json_object_set_string_member (object, "object", uuid);
    json_object_set_int_member (object, "stripes", (int64_t) unrecovered->n_stripes);
    json_object_set_int_member (object, "bytes", (int64_t) unrecovered->bytes);
    return to_text (object);
}

char *ecfs_fsck_tell_orphan (EcfsArchive *archive, const EcfsStranger *orphan, int64_t age_s)
{
    JsonObject *object = json_object_new ();
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&orphan->object, orphan->index, orphan->instance, name);
    json_object_set_string_member (object, "about", "orphan");
    json_object_set_string_member (object, "endpoint", endpoint_name (archive, orphan->position));
    json_object_set_string_member (object, "name", name);
    json_object_set_int_member (object, "bytes", (int64_t) orphan->size);
    json_object_set_int_member (object, "age", age_s);
    return to_text (object);
}

char *ecfs_fsck_tell_endpoint (EcfsArchive *archive, size_t position, const EcfsFsckEndpoint *counts, const char *text)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "about", "endpoint");
    json_object_set_string_member (object, "name", endpoint_name (archive, position));
    put_counts (object, counts);
    put_bytes (object, "text", text);
    return to_text (object);
}

char *ecfs_fsck_tell_journal (EcfsArchive *archive, size_t position, const char *text, bool repaired)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "about", "journal");
    if (position != SIZE_MAX)
        json_object_set_string_member (object, "name", endpoint_name (archive, position));
    json_object_set_string_member (object, "result", repaired ? "repaired" : "left");
    put_bytes (object, "text", text);
    return to_text (object);
}

static JsonObject *sample_facts (const EcfsFsckRun *run)
{
    const EcfsFsckDeep *deep = &run->deep;
    JsonObject *object = json_object_new ();
    json_object_set_double_member (object, "percent", run->what->sample * 100);
    json_object_set_int_member (object, "seed", (int64_t) run->what->seed);
    json_object_set_int_member (object, "population", (int64_t) deep->n_population);
    json_object_set_int_member (object, "read", (int64_t) deep->n_sampled);
    json_object_set_int_member (object, "bad", (int64_t) deep->n_bad);
    json_object_set_double_member (object, "confidence", ECFS_SAMPLE_CONFIDENCE);
    json_object_set_int_member (
        object, "at_most_bad",
        (int64_t) ecfs_sample_most_bad (deep->n_population, deep->n_sampled, deep->n_bad, ECFS_SAMPLE_CONFIDENCE));
    return object;
}

static JsonObject *deep_facts (const EcfsFsckRun *run)
{
    const EcfsFsckDeep *deep = &run->deep;
    JsonObject *object = json_object_new ();
    json_object_set_int_member (object, "stripes", (int64_t) deep->n_stripes);
    json_object_set_boolean_member (object, "whole", deep->is_whole);
    if (run->what->sample > 0)
        json_object_set_object_member (object, "sample", sample_facts (run));
    if (deep->state.pass == 0)
        return object;
    json_object_set_boolean_member (object, "kept", deep->keeps);
    if ((run->what->flags & ECFS_FSCK_REMOTE_HASH) != 0)
        json_object_set_int_member (object, "unchanged", (int64_t) deep->n_unchanged);
    json_object_set_int_member (object, "began", deep->state.began_ns / 1000000000);
    json_object_set_boolean_member (object, "continues", deep->state.open);
    json_object_set_int_member (object, "left_bytes", (int64_t) deep->left_bytes);
    return object;
}

char *ecfs_fsck_tell_summary (const EcfsFsckRun *run)
{
    const EcfsFsckSums *sums = &run->sums;
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"objects", sums->n_objects},
        {"stripes", sums->n_stripes},
        {"stripes_never_stored", sums->n_absent},
        {"stripes_gone", sums->n_gone},
        {"stripes_damaged", sums->n_damaged},
        {"stripes_unknown", sums->n_unknown},
        {"stripes_rebuilt", sums->n_rebuilt},
        {"past_objects", sums->n_past_objects},
        {"past_stripes", sums->n_past_stripes},
        {"past_stripes_missing", sums->n_past_missing},
        {"past_stripes_rebuilt", sums->n_past_rebuilt},
        {"objects_rebuilt", sums->n_rebuilt_objects},
        {"sha256_kept", sums->n_sha256},
        {"orphans", sums->n_orphans},
        {"orphan_bytes", sums->orphan_bytes},
        {"orphans_old", sums->n_old_orphans},
        {"orphans_removed", sums->n_pruned},
        {"removed_bytes", sums->pruned_bytes},
        {"orphans_unrecovered", sums->n_unrecovered},
        {"catalog_problems", sums->n_problems},
        {"journals_repaired", sums->n_journals_repaired},
        {"journals_left", sums->n_journals_left},
        {"objects_found", sums->results[ECFS_DAMAGE_FOUND]},
        {"objects_repaired", sums->results[ECFS_DAMAGE_REPAIRED]},
        {"objects_left", sums->results[ECFS_DAMAGE_LEFT]},
        {"objects_unknown", sums->results[ECFS_DAMAGE_UNKNOWN]},
        {"objects_changed", sums->results[ECFS_DAMAGE_CHANGED]},
        {"objects_crowded", sums->crowded[ECFS_CROWDED_FOUND] + sums->crowded[ECFS_CROWDED_LEFT]},
        {"objects_misplaced", sums->misplaced[ECFS_CROWDED_FOUND] + sums->misplaced[ECFS_CROWDED_LEFT]},
        {"objects_moved", sums->crowded[ECFS_CROWDED_MOVED] + sums->misplaced[ECFS_CROWDED_MOVED]},
        {"objects_waiting", sums->crowded[ECFS_CROWDED_WAITS]},
        {"stripes_moved", sums->n_moved_stripes},
        {"moved_bytes", sums->moved_bytes},
        {"checked_bytes", sums->checked_bytes},
        {"read_bytes", sums->read_bytes},
        {"written_bytes", sums->written_bytes},
    };
    JsonObject *object = json_object_new ();
    JsonArray *array = json_array_new ();
    json_object_set_string_member (object, "about", "summary");
    for (size_t i = 0; i < G_N_ELEMENTS (members); i++)
        json_object_set_int_member (object, members[i].name, (int64_t) members[i].value);
    for (size_t i = 0; i < run->n_endpoints; i++) {
        JsonObject *one = json_object_new ();
        json_object_set_string_member (one, "name", endpoint_name (run->archive, i));
        put_counts (one, &run->endpoints[i]);
        json_array_add_object_element (array, one);
    }
    json_object_set_array_member (object, "endpoints", array);
    json_object_set_boolean_member (object, "out_of_time", run->sums.is_cut || (run->is_late && !run->is_done));
    if (run->what->flags & ECFS_FSCK_DEEP)
        json_object_set_object_member (object, "deep", deep_facts (run));
    return to_text (object);
}
