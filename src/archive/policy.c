#include "archive/policy.h"

#include "util/error.h"
#include "util/units.h"

#define DAY_US        (INT64_C (86400) * G_USEC_PER_SEC)
#define DEFAULT_AFTER (30 * DAY_US)
#define MOST_AFTER    (36500 * DAY_US)
#define DEFAULT_READS 3
#define MOST_READS    1000000

static bool parse_word (const char *word, EcfsPolicy *policy, GError **error)
{
    guint64 reads;
    const char *value = strchr (word, '=');
    value = value == NULL ? "" : value + 1;
    if (g_str_has_prefix (word, "cold=") && *value != '\0') {
        g_free (policy->cold);
        policy->cold = g_strdup (value);
        return true;
    }
    if (g_str_has_prefix (word, "after="))
        return (ecfs_parse_duration (value, &policy->after_us) && policy->after_us <= MOST_AFTER) ||
               ecfs_fail (error, EINVAL, "\"%s\" is not after= and a time such as 30d", word);
    if (g_str_has_prefix (word, "min="))
        return (ecfs_parse_size (value, &policy->min_bytes) && policy->min_bytes <= INT64_MAX) ||
               ecfs_fail (error, EINVAL, "\"%s\" is not min= and a size such as 1M", word);
    if (g_str_has_prefix (word, "reads=") && g_ascii_string_to_unsigned (value, 10, 0, MOST_READS, &reads, NULL)) {
        policy->reads = (unsigned) reads;
        return true;
    }
    return ecfs_fail (error, EINVAL, "\"%s\" is none of cold=CODE, after=TIME, min=SIZE and reads=NUMBER", word);
}

static bool parse (const char *text, EcfsPolicy *policy, GError **error)
{
    g_auto (GStrv) words = g_strsplit (text, " ", -1);
    for (size_t i = 0; words[i] != NULL; i++)
        if (*words[i] != '\0' && !parse_word (words[i], policy, error))
            return false;
    return policy->cold != NULL ||
           ecfs_fail (error, EINVAL, "a policy is \"none\", or names a code as cold=CODE: \"%s\" does not", text);
}

bool ecfs_policy_parse (const char *text, EcfsPolicy *ret_policy, GError **error)
{
    EcfsPolicy policy = {.cold = NULL};
    *ret_policy = policy;
    if (strcmp (text, "none") == 0)
        return true;
    policy.after_us = DEFAULT_AFTER;
    policy.reads = DEFAULT_READS;
    if (!parse (text, &policy, error)) {
        ecfs_policy_clear (&policy);
        return false;
    }
    *ret_policy = policy;
    return true;
}

void ecfs_policy_clear (EcfsPolicy *self)
{
    g_clear_pointer (&self->cold, g_free);
}

EcfsTemperature ecfs_policy_judge (const EcfsPolicy *self, const EcfsPolicyFacts *facts)
{
    bool is_read = facts->since_read_us < self->after_us;
    if (self->cold == NULL || facts->size < MAX (self->min_bytes, 1))
        return ECFS_STAYS;
    if (is_read && self->reads > 0 && facts->n_reads >= self->reads)
        return ECFS_HOT;
    return !is_read && facts->since_written_us >= self->after_us ? ECFS_COLD : ECFS_STAYS;
}
