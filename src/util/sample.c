#include "util/sample.h"

#include <math.h>

#define ROUNDING 1e-6 /* of logarithms of large factorials, taken to the safe side */

static double log_choose (uint64_t n, uint64_t k)
{
    return lgamma ((double) n + 1) - lgamma ((double) k + 1) - lgamma ((double) (n - k) + 1);
}

/* The probability of at most @most bad ones in the sample, where @bad of all are. */
static double at_most (uint64_t population, uint64_t sampled, uint64_t bad, uint64_t most)
{
    uint64_t good = population - bad;
    uint64_t first = sampled > good ? sampled - good : 0;
    if (most < first)
        return 0;
    uint64_t last = most < bad ? most : bad;
    if (last > sampled)
        last = sampled;
    if (last == bad || last == sampled)
        return 1;
    double all = log_choose (population, sampled), sum = 0;
    for (uint64_t i = last + 1; i-- > first;) {
        double term = exp (log_choose (bad, i) + log_choose (good, sampled - i) - all);
        sum += term;
        if (term < sum * 1e-12) /* below the mode they only get smaller */
            break;
    }
    return sum < 1 ? sum : 1;
}

uint64_t ecfs_sample_most_bad (uint64_t population, uint64_t sampled, uint64_t bad, double confidence)
{
    uint64_t low = bad, high = population - (sampled - bad);
    while (low < high) {
        uint64_t middle = high - (high - low) / 2;
        if (at_most (population, sampled, middle, bad) > (1 - confidence) * (1 - ROUNDING))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

double ecfs_sample_notices (uint64_t population, uint64_t sampled, uint64_t bad)
{
    return bad == 0 ? 0 : 1 - at_most (population, sampled, bad, 0);
}
