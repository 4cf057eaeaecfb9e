/* What a sample tells, against counting all samples of small numbers. */
#include "util/sample.h"

#include <glib.h>

/* Of all ways to choose, those with at most so many bad ones: by the recurrence of drawing one after the other. */
static double at_most (unsigned population, unsigned sampled, unsigned bad, unsigned most)
{
    double now[64] = {1};
    for (unsigned drawn = 0; drawn < sampled; drawn++) {
        double next[64] = {0};
        for (unsigned found = 0; found <= drawn && found <= bad; found++) {
            double part = (double) (bad - found) / (population - drawn);
            next[found + 1] += now[found] * part;
            next[found] += now[found] * (1 - part);
        }
        for (unsigned i = 0; i < 64; i++)
            now[i] = next[i];
    }
    double sum = 0;
    for (unsigned i = 0; i <= most; i++)
        sum += now[i];
    return sum;
}

static void test_bound_is_exact (void)
{
    for (unsigned population = 1; population <= 30; population += 3)
        for (unsigned sampled = 0; sampled <= population; sampled++)
            for (unsigned bad = 0; bad <= sampled; bad++) {
                unsigned most = bad;
                while (most < population - (sampled - bad) &&
                       at_most (population, sampled, most + 1, bad) > 0.05 * (1 - 1e-6))
                    most++;
                g_assert_cmpuint (ecfs_sample_most_bad (population, sampled, bad, 0.95), ==, most);
            }
}

/* "The rule of three": nothing in n of very many is less than about 3 / n. */
static void test_large_numbers (void)
{
    uint64_t most = ecfs_sample_most_bad (6000000000, 1000000, 0, 0.95);
    g_assert_cmpuint (most, >, 17900);
    g_assert_cmpuint (most, <, 18000);
    g_assert_cmpuint (ecfs_sample_most_bad (6000000000, 6000000000, 12, 0.95), ==, 12);
    g_assert_cmpfloat_with_epsilon (ecfs_sample_notices (1000000, 10000, 300), 0.951, 0.001);
    g_assert_cmpfloat (ecfs_sample_notices (1000, 10, 0), ==, 0);
    g_assert_cmpfloat (ecfs_sample_notices (1000, 10, 995), ==, 1);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/sample/bound-is-exact", test_bound_is_exact);
    g_test_add_func ("/sample/large-numbers", test_large_numbers);
    return g_test_run ();
}
