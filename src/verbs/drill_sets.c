/*
 * A drill by the catalog alone: for each set of endpoints that may vanish, is there an object that its code promises to
 * survive that with and that would not be readable? What is known to be damaged or gone counts as lost already.
 *
 * Objects that ecfs_holders_guarantee () proves to survive all that their code promises are only counted. The others
 * are looked at set by set, those together that have the same code and their stripes at the same endpoints. So where
 * all is as it should be, this costs one walk over the objects.
 */
#include "object/placement.h"
#include "verbs/drill_priv.h"
#include "verbs/kinds.h"

#define MOST_SETS    200000 /* that are told apart, of all sizes together */
#define MOST_TOLD    100    /* of each size that lose something */
#define MOST_AT_ONCE 16     /* endpoints in a set */

/* Sets of one size, in lexicographic order. */
typedef struct Sets {
    unsigned size;
    uint64_t n;
    uint64_t n_objects; /* whose code promises to survive so many */
    uint64_t n_assured; /* of these, for which all sets are proven at once */
    uint64_t *n_lost;   /* of the others for each set; NULL: there are too many sets */
} Sets;

typedef struct Sorted {
    GHashTable *kinds;                    /* of EcfsKind */
    uint64_t n_assured[MOST_AT_ONCE + 1]; /* objects that survive so many endpoints, as their code promises */
    unsigned most;                        /* endpoints that a code promises to do without */
} Sorted;

typedef struct Sorting {
    EcfsArchive *archive;
    EcfsKnownDamage damage;
    Sorted *sorted;
} Sorting;

static bool sort_object (void *user, const EcfsObjectRow *object, GError **error)
{
    Sorting *self = user;
    Sorted *sorted = self->sorted;
    EcfsStanding standing;
    EcfsKind kind = {.codec = ecfs_archive_codec (self->archive, object->code, error), .n_objects = 1};
    if (kind.codec == NULL)
        return false;
    ecfs_drill_standing (self->archive, object, kind.codec, &self->damage, &standing);
    for (unsigned i = 0; i < standing.n; i++) {
        kind.present[i] = standing.held[i];
        kind.holder[i] = standing.holder[i];
    }
    kind.guarantee = ecfs_holders_guarantee (kind.codec, kind.present, kind.holder);
    unsigned promised = MIN (ecfs_codec_tolerance (kind.codec), MOST_AT_ONCE);
    sorted->most = MAX (sorted->most, promised);
    if (kind.guarantee >= (int) promised) {
        sorted->n_assured[promised]++;
        return true;
    }
    ecfs_kinds_add (sorted->kinds, &kind);
    return true;
}

static bool sort_objects (EcfsArchive *archive, Sorted *sorted, GError **error)
{
    Sorting self = {.archive = archive, .sorted = sorted};
    bool done = ecfs_damage_load (archive, &self.damage, error) &&
                ecfs_catalog_each_object (ecfs_archive_catalog (archive), sort_object, &self, error);
    ecfs_damage_clear (&self.damage);
    return done;
}

/* Sets */

static uint64_t choose (uint64_t n, uint64_t k)
{
    double found = 1;
    for (uint64_t i = 0; i < k; i++)
        found = found * (double) (n - i) / (double) (i + 1);
    return found < (double) MOST_SETS * 1000 ? (uint64_t) (found + 0.5) : (uint64_t) MOST_SETS * 1000;
}

static void first_set (unsigned size, size_t *set)
{
    for (unsigned i = 0; i < size; i++)
        set[i] = i;
}

/* The next set in lexicographic order; false: that was the last. */
static bool next_set (unsigned size, size_t n_endpoints, size_t *set)
{
    for (unsigned i = size; i-- > 0;) {
        if (set[i] >= n_endpoints - size + i)
            continue;
        set[i]++;
        for (unsigned j = i + 1; j < size; j++)
            set[j] = set[j - 1] + 1;
        return true;
    }
    return false;
}

static void try_sets (Sets *sets, const EcfsKind *kind, size_t n_endpoints)
{
    sets->n_objects += kind->n_objects;
    if (kind->guarantee >= (int) sets->size) {
        sets->n_assured += kind->n_objects;
        return;
    }
    size_t set[MOST_AT_ONCE];
    first_set (sets->size, set);
    for (uint64_t number = 0; number < sets->n && sets->n_lost != NULL; number++) {
        if (!ecfs_kind_survives (kind, set, sets->size))
            sets->n_lost[number] += kind->n_objects;
        (void) next_set (sets->size, n_endpoints, set); /* the number says when it ends */
    }
}

/* Reporting */

static JsonObject *tell_set (const EcfsArchive *archive, const size_t *set, unsigned size, uint64_t n_lost)
{
    JsonObject *told = json_object_new ();
    JsonArray *names = json_array_new ();
    for (unsigned i = 0; i < size; i++)
        json_array_add_string_element (names, ecfs_archive_endpoint (archive, set[i])->name);
    json_object_set_array_member (told, "without", names);
    json_object_set_int_member (told, "unreadable", (int64_t) n_lost);
    return told;
}

static JsonObject *tell_sets (const EcfsArchive *archive, const Sets *sets, size_t n_endpoints, bool *good)
{
    uint64_t n_safe = 0;
    size_t set[MOST_AT_ONCE];
    JsonObject *told = json_object_new ();
    JsonArray *unsafe = json_array_new ();
    first_set (sets->size, set);
    for (uint64_t number = 0; sets->n_lost != NULL && number < sets->n; number++) {
        n_safe += sets->n_lost[number] == 0;
        if (sets->n_lost[number] > 0 && json_array_get_length (unsafe) < MOST_TOLD)
            json_array_add_object_element (unsafe, tell_set (archive, set, sets->size, sets->n_lost[number]));
        (void) next_set (sets->size, n_endpoints, set); /* likewise */
    }
    bool all = sets->n_objects == sets->n_assured;
    json_object_set_int_member (told, "endpoints", sets->size);
    json_object_set_int_member (told, "objects", (int64_t) sets->n_objects);
    json_object_set_int_member (told, "sets", (int64_t) sets->n);
    if (sets->n_lost != NULL || all)
        json_object_set_int_member (told, "safe", (int64_t) (all ? sets->n : n_safe));
    json_object_set_array_member (told, "unsafe", unsafe);
    *good = *good && (all || (sets->n_lost != NULL && n_safe == sets->n));
    return told;
}

/* All objects with a code that promises to survive the loss of so many. */
static void try_all (Sets *sets, const Sorted *sorted, size_t n_endpoints)
{
    GHashTableIter iter;
    const EcfsKind *kind;
    for (unsigned promised = sets->size; promised <= MOST_AT_ONCE; promised++)
        sets->n_assured += sorted->n_assured[promised];
    sets->n_objects = sets->n_assured;
    g_hash_table_iter_init (&iter, sorted->kinds);
    while (g_hash_table_iter_next (&iter, NULL, (void **) &kind))
        if (ecfs_codec_tolerance (kind->codec) >= sets->size)
            try_sets (sets, kind, n_endpoints);
}

static bool try_sizes (EcfsArchive *archive, const Sorted *sorted, JsonObject *report)
{
    bool good = true;
    uint64_t n_left = MOST_SETS;
    JsonArray *sizes = json_array_new ();
    size_t n_endpoints = ecfs_archive_n_endpoints (archive);
    for (unsigned size = 0; size <= MIN (sorted->most, n_endpoints); size++) {
        Sets sets = {.size = size, .n = choose (n_endpoints, size)};
        if (sets.n <= n_left)
            sets.n_lost = g_new0 (uint64_t, sets.n);
        n_left -= sets.n_lost != NULL ? sets.n : 0;
        try_all (&sets, sorted, n_endpoints);
        json_array_add_object_element (sizes, tell_sets (archive, &sets, n_endpoints, &good));
        g_free (sets.n_lost);
    }
    json_object_set_array_member (report, "losses", sizes);
    return good;
}

bool ecfs_drill_sets (EcfsArchive *archive, JsonObject *report, bool *ret_good, GError **error)
{
    Sorted sorted = {.kinds = ecfs_kinds_new ()};
    bool done = sort_objects (archive, &sorted, error);
    bool has_key = true;
    if (done)
        *ret_good = try_sizes (archive, &sorted, report);
    done = done && ecfs_drill_key (archive, NULL, report, &has_key, error);
    *ret_good = *ret_good && has_key;
    g_hash_table_unref (sorted.kinds);
    return done;
}
