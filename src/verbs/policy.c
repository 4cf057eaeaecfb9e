/* The verb policy: what is cold goes to another code, and what is read often back to that of its file. */
#include "archive/policy.h"
#include "archive/common.h"
#include "catalog/reads.h"
#include "verbs/recode.h"
#include "verbs/status_priv.h"

#include <json-glib/json-glib.h>
#include <string.h>

#define MOST_COUNTED 50000 /* files that status looks at */

/* What the walk over files knows. */
typedef struct Chooser {
    EcfsArchive *archive;
    GHashTable *policies; /* directory → EcfsPolicy, as found on the way */
    EcfsReads *reads;
    bool owns_reads;
    bool moves;    /* what is chosen is done */
    char *code;    /* that was chosen last */
    GError *error; /* the first */
} Chooser;

static void policy_free (gpointer data)
{
    ecfs_policy_clear (data);
    g_free (data);
}

static void chooser_init (Chooser *self, EcfsArchive *archive)
{
    EcfsReads *reads = ecfs_archive_service (archive, ECFS_SERVICE_READS);
    *self = (Chooser){.archive = archive,
                      .policies = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, policy_free),
                      .reads = reads != NULL ? reads : ecfs_reads_new (ecfs_archive_directory (archive)),
                      .owns_reads = reads == NULL};
}

/* @fine: what was done with it. False: that was not, or a policy could not be followed. */
static bool chooser_end (Chooser *self, bool fine, GError **error)
{
    if (fine && self->error != NULL) {
        g_propagate_error (error, g_steal_pointer (&self->error));
        fine = false;
    }
    g_hash_table_unref (self->policies);
    if (self->owns_reads)
        ecfs_reads_free (self->reads);
    g_free (self->code);
    g_clear_error (&self->error);
    return fine;
}

/* What a directory says itself, NULL: nothing. */
static char *attribute (Chooser *self, const char *directory, GError **error)
{
    EcfsAttr attr;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    GError *why = NULL;
    g_autoptr (GByteArray) value = NULL;
    if (ecfs_catalog_resolve (catalog, directory, &attr, &why))
        value = ecfs_catalog_getxattr (catalog, attr.ino, ECFS_POLICY_ATTRIBUTE, &why);
    if (value != NULL)
        return g_strndup ((const char *) value->data, value->len);
    if (why->code == ENODATA || why->code == ENOENT)
        g_error_free (why);
    else
        g_propagate_error (error, why);
    return NULL;
}

/* The policy of files in a directory, lent until chooser_end (); NULL: error. */
static const EcfsPolicy *policy_of (Chooser *self, const char *directory, GError **error)
{
    const EcfsPolicy *known = g_hash_table_lookup (self->policies, directory);
    if (known != NULL)
        return known;
    GError *why = NULL;
    g_autofree char *text = attribute (self, directory, &why);
    EcfsPolicy *policy = g_new0 (EcfsPolicy, 1);
    if (why == NULL && text == NULL && strcmp (directory, "/") != 0) {
        g_autofree char *parent = g_path_get_dirname (directory);
        const EcfsPolicy *above = policy_of (self, parent, &why);
        if (above != NULL) {
            *policy = *above;
            policy->cold = g_strdup (above->cold);
        }
    } else if (why == NULL) {
        (void) ecfs_policy_parse (text != NULL ? text : ecfs_archive_config (self->archive)->policy, policy, &why);
    }
    if (why == NULL && policy->cold != NULL)
        (void) ecfs_archive_check_code (self->archive, policy->cold, &why);
    if (why != NULL) {
        policy_free (policy);
        g_propagate_prefixed_error (error, why, "the policy of %s: ", directory);
        return NULL;
    }
    g_hash_table_insert (self->policies, g_strdup (directory), policy);
    return policy;
}

/* Of a file, "as it is stored now" excepted: who recodes sees whether it has the code already. */
static const char *choose_code (Chooser *self, const EcfsEntry *entry, EcfsTemperature *ret_is, GError **error)
{
    g_autofree char *directory = g_path_get_dirname (entry->path);
    const EcfsPolicy *policy = policy_of (self, directory, error);
    if (policy == NULL)
        return NULL;
    EcfsPolicyFacts facts = {.size = entry->size,
                             .since_written_us = g_get_real_time () - entry->mtime_ns / 1000,
                             .since_read_us = INT64_MAX};
    (void) ecfs_reads_of (self->reads, entry->inode, &facts.n_reads, &facts.since_read_us); /* else nothing is known */
    *ret_is = ecfs_policy_judge (policy, &facts);
    g_clear_pointer (&self->code, g_free);
    if (*ret_is == ECFS_COLD)
        self->code = g_strdup (policy->cold);
    else if (*ret_is == ECFS_HOT &&
             !ecfs_catalog_get_code (ecfs_archive_catalog (self->archive), entry->inode, &self->code, error))
        return NULL;
    else if (*ret_is == ECFS_HOT && self->code == NULL)
        self->code = g_strdup (ecfs_archive_config (self->archive)->code);
    return self->code;
}

static const char *choose (void *user, const EcfsEntry *entry)
{
    Chooser *self = user;
    EcfsTemperature is = ECFS_STAYS;
    GError *why = NULL;
    const char *code = self->error != NULL ? NULL : choose_code (self, entry, &is, &why);
    if (why != NULL)
        self->error = why;
    if (code != NULL && is == ECFS_COLD && self->moves)
        ecfs_reads_forget (self->reads, entry->inode);
    return code;
}

bool ecfs_policy_here (EcfsArchive *archive, const EcfsRecodeHere *what, GError **error)
{
    Chooser chooser;
    chooser_init (&chooser, archive);
    chooser.moves = true;
    EcfsRecodeHere chosen = *what;
    chosen.choose = choose;
    chosen.chooser = &chooser;
    return chooser_end (&chooser, ecfs_recode_here (archive, &chosen, error), error);
}

bool ecfs_apply_policy (Ecfs *self, const char *path, const EcfsTransferOptions *transfer, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    const EcfsRecodeHere what = {.path = path, .transfer = transfer};
    if (!ecfs_check_leads (self, error))
        return false;
    return self->mounted ? ecfs_policy_mounted (directory, path, transfer, error)
                         : ecfs_policy_here (self->archive, &what, error);
}

char *ecfs_policy_cost (Ecfs *self, const char *path, GError **error)
{
    Chooser chooser;
    chooser_init (&chooser, self->archive);
    g_autofree char *text = ecfs_recode_cost_chosen (self->archive, path, choose, &chooser, error);
    return chooser_end (&chooser, text != NULL, error) ? g_steal_pointer (&text) : NULL;
}

/* What is due now; where that would take long, only that there is something to look at. */
static bool count (EcfsArchive *archive, JsonObject *facts, GError **error)
{
    EcfsTotals totals;
    Chooser chooser;
    uint64_t n_files, n_bytes;
    if (!ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, error))
        return false;
    if (totals.n_files > MOST_COUNTED)
        return true;
    chooser_init (&chooser, archive);
    bool counted = ecfs_recode_count_chosen (archive, choose, &chooser, &n_files, &n_bytes, error);
    if (!chooser_end (&chooser, counted, error))
        return false;
    json_object_set_int_member (facts, "files", (int64_t) n_files);
    json_object_set_int_member (facts, "content_bytes", (int64_t) n_bytes);
    return true;
}

bool ecfs_status_add_policy (JsonObject *status, EcfsArchive *archive, GError **error)
{
    bool any = strcmp (ecfs_archive_config (archive)->policy, "none") != 0;
    g_autoptr (GError) why = NULL;
    if (!any && !ecfs_catalog_knows_xattr (ecfs_archive_catalog (archive), ECFS_POLICY_ATTRIBUTE, &any, error))
        return false;
    if (!any)
        return true;
    JsonObject *facts = json_object_new ();
    if (!count (archive, facts, &why)) /* of one that cannot be followed, all else is to be seen */
        ecfs_status_add_text (facts, "error", why->message);
    json_object_set_object_member (status, "policy", facts);
    return true;
}
