#include "endpoint/web/http_range.h"

#include <string.h>

static bool parse_number (const char **text, uint64_t *ret_number)
{
    char *end;
    if (!g_ascii_isdigit (**text))
        return false;
    errno = 0;
    *ret_number = g_ascii_strtoull (*text, &end, 10);
    *text = end;
    return errno == 0;
}

bool ecfs_http_parse_range (const char *text, EcfsHttpRange *ret_range)
{
    EcfsHttpRange range = {.total = UINT64_MAX};
    text += strspn (text, " \t");
    if (g_ascii_strncasecmp (text, "bytes", 5) != 0 || (text[5] != ' ' && text[5] != '\t'))
        return false;
    text += 5 + strspn (text + 5, " \t");
    if (!parse_number (&text, &range.first) || *text++ != '-' || !parse_number (&text, &range.last) || *text++ != '/')
        return false;
    if (*text == '*')
        text++;
    else if (!parse_number (&text, &range.total))
        return false;
    text += strspn (text, " \t\r\n");
    if (*text != '\0' || range.first > range.last || range.last >= range.total)
        return false;
    *ret_range = range;
    return true;
}
