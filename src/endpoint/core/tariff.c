#include "endpoint/tariff.h"

#define MILLION    UINT64_C (1000000)
#define MOST_MONEY MILLION /* as a price */
#define DIGITS     6       /* behind the point */

bool ecfs_parse_money (const char *text, uint64_t *ret_millionths)
{
    uint64_t whole = 0, part = 0;
    unsigned n = 0, n_whole = 0;
    for (; g_ascii_isdigit (*text) && whole <= MOST_MONEY; text++, n_whole++)
        whole = whole * 10 + (uint64_t) (*text - '0');
    if (n_whole == 0)
        return false;
    if (*text == '.')
        for (text++; g_ascii_isdigit (*text) && n < DIGITS; text++, n++)
            part = part * 10 + (uint64_t) (*text - '0');
    if (*text != '\0' || text[-1] == '.')
        return false;
    for (; n < DIGITS; n++)
        part *= 10;
    *ret_millionths = whole * MILLION + part;
    return *ret_millionths <= MOST_MONEY * MILLION;
}

static uint64_t times (uint64_t price, uint64_t number)
{
    return price > 0 && number > UINT64_MAX / price ? UINT64_MAX : price * number;
}

uint64_t ecfs_price_of_bytes (uint64_t price, uint64_t bytes)
{
    uint64_t kilobytes = bytes / 1000; /* the rest of a GB and the highest price stay below 10^18 */
    return ecfs_add_up (times (price, kilobytes / MILLION), times (price, kilobytes % MILLION) / MILLION);
}

uint64_t ecfs_price_of_requests (uint64_t price, uint64_t requests)
{
    return ecfs_add_up (times (price, requests / 1000), times (price, requests % 1000) / 1000);
}
