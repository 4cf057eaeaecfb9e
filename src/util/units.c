#include "util/units.h"

#include "ecfs/ecfs.h" /* which exports them */

#include <errno.h>
#include <glib.h>
#include <string.h>

typedef struct Unit {
    const char *suffix;
    uint64_t factor;
} Unit;

static bool parse (const char *text, const Unit *units, size_t n_units, uint64_t max, uint64_t *ret_value)
{
    char *end;
    errno = 0;
    if (!g_ascii_isdigit (text[0]))
        return false;
    uint64_t value = g_ascii_strtoull (text, &end, 10);
    if (errno != 0)
        return false;
    for (size_t i = 0; i < n_units; i++) {
        if (strcmp (end, units[i].suffix) != 0)
            continue;
        if (value > max / units[i].factor)
            return false;
        *ret_value = value * units[i].factor;
        return true;
    }
    return false;
}

bool ecfs_parse_size (const char *text, uint64_t *ret_bytes)
{
    static const Unit units[] = {{"", 1},
                                 {"K", 1ull << 10},
                                 {"M", 1ull << 20},
                                 {"G", 1ull << 30},
                                 {"T", 1ull << 40},
                                 {"KiB", 1ull << 10},
                                 {"MiB", 1ull << 20},
                                 {"GiB", 1ull << 30},
                                 {"TiB", 1ull << 40},
                                 {"kB", 1000},
                                 {"KB", 1000},
                                 {"MB", 1000000},
                                 {"GB", 1000000000},
                                 {"TB", 1000000000000}};
    return parse (text, units, G_N_ELEMENTS (units), INT64_MAX, ret_bytes);
}

bool ecfs_parse_duration (const char *text, int64_t *ret_us)
{
    static const Unit units[] = {{"", 1000000},   {"ms", 1000},         {"s", 1000000},
                                 {"m", 60000000}, {"h", 3600000000ull}, {"d", 86400000000ull}};
    uint64_t us;
    if (!parse (text, units, G_N_ELEMENTS (units), INT64_MAX, &us))
        return false;
    *ret_us = (int64_t) us;
    return true;
}

bool ecfs_parse_moment (const char *text, int64_t *ret_ns)
{
    int64_t ago_us;
    if (ecfs_parse_duration (text, &ago_us)) {
        *ret_ns = (g_get_real_time () - ago_us) * 1000;
        return *ret_ns > 0;
    }
    static const struct {
        size_t size;
        const char *rest;
    } shorter[] = {{sizeof "2026-11-25" - 1, " 00:00:00"}, {sizeof "2026-11-25 14:30" - 1, ":00"}};
    const char *rest = "";
    for (size_t i = 0; i < G_N_ELEMENTS (shorter); i++)
        if (strlen (text) == shorter[i].size)
            rest = shorter[i].rest;
    g_autofree char *whole = g_strconcat (text, rest, NULL);
    g_autoptr (GTimeZone) here = g_time_zone_new_local ();
    g_autoptr (GDateTime) moment = g_date_time_new_from_iso8601 (whole, here);
    if (moment == NULL || g_date_time_to_unix (moment) <= 0 || g_date_time_to_unix (moment) >= INT64_MAX / 1000000000)
        return false;
    bool is_second = strpbrk (text, ".,") == NULL;
    *ret_ns = g_date_time_to_unix (moment) * 1000000000 +
              (is_second ? 999999999 : g_date_time_get_microsecond (moment) * (int64_t) 1000);
    return true;
}
