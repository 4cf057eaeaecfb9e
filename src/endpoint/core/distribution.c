/*
 * What values a quantity takes lately: quantiles in constant memory.
 *
 * The buckets are those of DDSketch (Masson, Rim, Lee, VLDB 2019): logarithmic, so that every quantile is known to the
 * same relative error, 4.4% with eight per doubling. Old samples fade by forward decay (Cormode et al., ICDE 2009): not
 * they lose weight, new ones weigh more. They fade with time, but never so fast that a few samples are all there is:
 * after a pause of any length a single one moves no quantile between p5 and p95 by itself.
 */
#include "endpoint/core/estimate.h"

#include <math.h>

#define PER_DOUBLING 8
#define HALF_LIFE_US (20 * G_USEC_PER_SEC)
#define MAX_GROWTH   (1.0 / 32) /* what a whole sample outgrows those before it by, at most */
#define MAX_GAIN     1e12       /* then all weights are brought down */
#define PRIOR_WEIGHT 8
#define MAX_VALUE    1e15

static unsigned bucket_of (double value)
{
    double bucket = log2 (MAX (value, 1)) * PER_DOUBLING;
    return (unsigned) MIN (bucket, ECFS_N_BUCKETS - 1);
}

static double value_of (unsigned bucket)
{
    return exp2 (((double) bucket + 0.5) / PER_DOUBLING);
}

static void find_quantiles (Distribution *self)
{
    const double shares[] = {0.05, 0.50, 0.95};
    double *const values[] = {&self->quantiles.p5, &self->quantiles.p50, &self->quantiles.p95};
    double sum = 0;
    unsigned next = 0;
    for (unsigned i = 0; i < ECFS_N_BUCKETS && next < G_N_ELEMENTS (shares); i++) {
        sum += self->weights[i];
        while (next < G_N_ELEMENTS (shares) && sum > 0 && sum >= shares[next] * self->sum * (1 - 1e-9))
            *values[next++] = value_of (i);
    }
}

static void add (Distribution *self, double value, double weight)
{
    self->weights[bucket_of (value)] += weight;
    self->sum += weight;
}

static void scale_down (Distribution *self)
{
    self->sum = 0;
    for (unsigned i = 0; i < ECFS_N_BUCKETS; i++)
        self->sum += self->weights[i] /= self->gain;
    self->gain = 1;
}

void ecfs_distribution_note (Distribution *self, double value, double weight, int64_t now_us)
{
    double age_us = self->sum > 0 ? (double) MAX (now_us - self->noted_us, 0) : 0;
    double growth = exp2 (age_us / HALF_LIFE_US);
    self->gain = self->sum > 0 ? self->gain * MIN (growth, 1 + weight * MAX_GROWTH) : 1;
    self->noted_us = now_us;
    if (self->gain > MAX_GAIN)
        scale_down (self);
    add (self, value, weight * self->gain);
    find_quantiles (self);
}

static bool is_sane (const EcfsQuantiles *quantiles)
{
    /* Written so that NaN is refused. */
    return quantiles->p5 > 0 && quantiles->p5 <= quantiles->p50 && quantiles->p50 <= quantiles->p95 &&
           quantiles->p95 <= MAX_VALUE;
}

bool ecfs_distribution_expect (Distribution *self, const EcfsQuantiles *prior)
{
    if (self->sum > 0 || !is_sane (prior))
        return false;
    self->gain = 1;
    add (self, prior->p5, 0.06 * PRIOR_WEIGHT);
    add (self, prior->p50, 0.88 * PRIOR_WEIGHT);
    add (self, prior->p95, 0.06 * PRIOR_WEIGHT);
    find_quantiles (self);
    return true;
}
