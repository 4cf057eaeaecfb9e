#include "object/policy.h"

#include <string.h>

#define MAX_NUMBER 10000

void ecfs_read_policy_init (EcfsReadPolicy *self)
{
    *self = (EcfsReadPolicy){.hedge_percent = ECFS_HEDGE_PERCENT};
}

/* "X=NUMBER" into the field for X. */
static bool parse_number (const char *part, EcfsReadPolicy *policy, GError **error)
{
    unsigned *field = part[0] == 'T' ? &policy->transfers : part[0] == 'R' ? &policy->replication : &policy->failover;
    guint64 number;
    if (!g_ascii_string_to_unsigned (part + 2, 10, 1, MAX_NUMBER, &number, NULL))
        return ecfs_fail (error, EINVAL, "\"%s\" is not a number from 1 to %d", part + 2, MAX_NUMBER);
    *field = (unsigned) number;
    return true;
}

static bool parse_part (const char *part, EcfsReadPolicy *policy, GError **error)
{
    if (part[0] != '\0' && strchr ("TRP", part[0]) != NULL && part[1] == '=')
        return parse_number (part, policy, error);
    if (strcmp (part, "fastest0") == 0)
        policy->selection = ECFS_SELECT_FASTEST0;
    else if (strcmp (part, "fastest1") == 0)
        policy->selection = ECFS_SELECT_FASTEST1;
    else if (strcmp (part, "data-first") == 0)
        policy->preference = ECFS_PREFER_DATA;
    else if (strcmp (part, "no-preference") == 0)
        policy->preference = ECFS_PREFER_NONE;
    else
        return ecfs_fail (error, EINVAL,
                          "\"%s\" is none of T=NUMBER, R=NUMBER, P=NUMBER, fastest0, fastest1, data-first, "
                          "no-preference",
                          part);
    return true;
}

bool ecfs_read_policy_parse (const char *text, EcfsReadPolicy *ret_policy, GError **error)
{
    EcfsReadPolicy policy = {.hedge_percent = ret_policy->hedge_percent, .cheap = ret_policy->cheap};
    if (strcmp (text, "default") != 0) {
        g_auto (GStrv) parts = g_strsplit (text, ",", -1);
        for (char **part = parts; *part != NULL; part++)
            if (!parse_part (g_strstrip (*part), &policy, error))
                return false;
        if (parts[0] == NULL)
            return ecfs_fail (error, EINVAL, "it is empty");
    }
    if (policy.failover > 0 && policy.replication < 2)
        return ecfs_fail (error, EINVAL, "P means something with R=2 or more only");
    if (policy.replication > 1 && policy.failover == 0)
        return ecfs_fail (error, EINVAL, "R=2 and more need P");
    *ret_policy = policy;
    return true;
}

char *ecfs_read_policy_format (const EcfsReadPolicy *self)
{
    g_autoptr (GString) text = g_string_new (NULL);
    if (self->transfers > 0)
        g_string_append_printf (text, ",T=%u", self->transfers);
    if (self->replication > 0)
        g_string_append_printf (text, ",R=%u", self->replication);
    if (self->failover > 0)
        g_string_append_printf (text, ",P=%u", self->failover);
    if (self->selection != ECFS_SELECT_SOONEST)
        g_string_append (text, self->selection == ECFS_SELECT_FASTEST0 ? ",fastest0" : ",fastest1");
    if (self->preference != ECFS_PREFER_SOONEST)
        g_string_append (text, self->preference == ECFS_PREFER_DATA ? ",data-first" : ",no-preference");
    return g_strdup (text->len == 0 ? "default" : text->str + 1);
}
