// A row's draw among the first tokens in order that hold the share top_p of all weights, without ordering them.
//
// Tokens so light that all of a vocabulary's would not fill the rest of the share are left out, and at first many more,
// where those that remain hold enough. They are counted into buckets by their logit: the bucket in which the share is
// full and the one that holds the target are the only ones whose tokens are put in order.
#include <algorithm>
#include <functional>

#include "logarithm.hpp"
#include "sampling_draw.hpp"

namespace penstock {

constexpr int64_t kBuckets = 4096;
constexpr float kFirstTry = 16;  // times the weight below which tokens can't matter

// The tokens that may be drawn, in the order of their ids.
struct Candidates {
    float* logits;
    float* weights;
    int32_t* ids;
    int64_t count;
};

// A row's candidates by their logit, the largest in bucket 0, and the memory in which one bucket is put in order.
struct Buckets {
    Candidates candidates;
    uint16_t* buckets;  // of the candidates
    double* sums;       // of the buckets' weights
    Key* keys;
    float* weights;  // in the order of `keys`
};

static Buckets memory_for(int64_t width) {
    const int64_t room = (width + kLanes + 63) / 64 * 64;
    const int64_t bytes = kBuckets * sizeof(double) + room * (sizeof(Key) + 4 * sizeof(float) + sizeof(uint16_t));
    double* sums = static_cast<double*>(thread_scratch(bytes));
    Key* keys = reinterpret_cast<Key*>(sums + kBuckets);
    float* floats = reinterpret_cast<float*>(keys + room);
    int32_t* ids = reinterpret_cast<int32_t*>(floats + 3 * room);
    return {{floats, floats + room, ids, 0}, reinterpret_cast<uint16_t*>(ids + room), sums, keys, floats + 2 * room};
}

// Appends those of up to kLanes tokens whose logit reaches the bound; writes beyond them.
static int64_t append(const float* values, int64_t count, int64_t first_id, float bound, Candidates& to, int64_t at) {
#if defined(__AVX512F__)
    const __m512 logits = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), values);
    const __mmask16 reached = _mm512_mask_cmp_ps_mask(
        static_cast<__mmask16>((1u << count) - 1), logits, _mm512_set1_ps(bound), _CMP_GE_OQ);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i ids = _mm512_add_epi32(lane, _mm512_set1_epi32(static_cast<int32_t>(first_id)));
    _mm512_storeu_ps(to.logits + at, _mm512_maskz_compress_ps(reached, logits));
    _mm512_storeu_si512(to.ids + at, _mm512_maskz_compress_epi32(reached, ids));
    return at + __builtin_popcount(reached);
#else
    for (int64_t i = 0; i < count; ++i) {
        to.logits[at] = values[i];
        to.ids[at] = static_cast<int32_t>(first_id + i);
        at += values[i] >= bound;
    }
    return at;
#endif
}

// The tokens that weigh at least so much; returns the sum of their weights.
static double gather(const Draw& draw, float least, Candidates& into) {
    const Logits& logits = draw.logits;
    // A little below, for rounding.
    const float bound = (static_cast<float>(natural_logarithm(least)) - 1e-4f) * draw.parameters.temperature + draw.largest;
    into.count = 0;
    for (int64_t block = 0; block < logits.num_blocks(); ++block) {
        if (logits.maxima_of(draw.row)[block] < bound) continue;
        const int64_t end = block * kBlock + logits.block_size(block);
        for (int64_t id = block * kBlock; id < end; id += kLanes) {
            const int64_t count = std::min(kLanes, end - id);
            into.count = append(logits.row(draw.row) + id, count, id, bound, into, into.count);
        }
    }
    weigh(into.logits, into.count, draw.largest, draw.parameters.temperature, into.weights);
    draw.parameters.leave_out(into.weights, into.count);
    double sum = 0;
    for (int64_t i = 0; i < into.count; i += kBlock) sum += sum_of(into.weights + i, std::min(kBlock, into.count - i));
    return sum;
}

static void gather_enough(const Draw& draw, double total, Candidates& into) {
    const double share = draw.parameters.top_p * total, rest = (1.0 - draw.parameters.top_p) * total;
    const float too_light = static_cast<float>(rest / static_cast<double>(draw.logits.width));
    const float least_weight = draw.parameters.least_weight();
    for (const float least : {kFirstTry * too_light, too_light}) {
        const double sum = gather(draw, std::min(1.0f, std::max(least_weight, least)), into);
        if (sum >= share || least <= least_weight) return;
    }
}

static float smallest_of(const float* values, int64_t count) {
    Vec found = broadcast(values[0]);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) found = minimum(load(values + i), found);
    float lanes[kLanes];
    store(lanes, found);
    float result = *std::min_element(lanes, lanes + kLanes);
    for (; i < count; ++i) result = std::min(result, values[i]);
    return result;
}

static void fill(Buckets& into, float largest) {
    const Candidates& from = into.candidates;
    const float lowest = smallest_of(from.logits, from.count);
    const float scale = lowest < largest ? (kBuckets - 1) / (largest - lowest) : 0;
    for (int64_t i = 0; i < from.count; ++i) {
        // Rounding may carry the lowest beyond the last bucket, and the largest differences are no numbers.
        const float bucket = (largest - from.logits[i]) * scale;
        into.buckets[i] = static_cast<uint16_t>(bucket < kBuckets - 1 ? static_cast<int32_t>(bucket) : kBuckets - 1);
    }
    std::fill(into.sums, into.sums + kBuckets, 0.0);
    for (int64_t i = 0; i < from.count; ++i) into.sums[into.buckets[i]] += from.weights[i];
}

// Puts one bucket in order, in `keys` and `weights`; returns how many there are.
static int64_t order(Buckets& buckets, int64_t wanted, const Draw& draw) {
    const Candidates& from = buckets.candidates;
    int64_t count = 0;
    for (int64_t i = 0; i < from.count; ++i) {
        if (buckets.buckets[i] == wanted) buckets.keys[count++] = key_of(from.logits[i], from.ids[i]);
    }
    std::sort(buckets.keys, buckets.keys + count, std::greater<Key>());
    for (int64_t i = 0; i < count; ++i) buckets.weights[i] = logit_of(buckets.keys[i]);
    weigh(buckets.weights, count, draw.largest, draw.parameters.temperature, buckets.weights);
    draw.parameters.leave_out(buckets.weights, count);
    return count;
}

// Where the kept tokens end, all of the buckets before being kept whole.
struct End {
    int64_t bucket;
    int64_t count;  // of the bucket's tokens that are kept
    double sum;     // of all kept weights
};

static End end_of_share(Buckets& buckets, double share, const Draw& draw) {
    End end{0, 0, 0};
    while (end.bucket < kBuckets - 1 && end.sum + buckets.sums[end.bucket] < share) {
        end.sum += buckets.sums[end.bucket++];
    }
    const int64_t count = order(buckets, end.bucket, draw);
    // A token is kept while the share of those before it falls short of top_p.
    while (end.count < count && end.sum < share && buckets.weights[end.count] > 0) {
        end.sum += buckets.weights[end.count++];
    }
    return end;
}

int64_t draw_of_top_p(const Draw& draw) {
    const double total = sum_of(draw.sums, draw.logits.num_blocks());
    Buckets buckets = memory_for(draw.logits.width);
    gather_enough(draw, total, buckets.candidates);
    fill(buckets, draw.largest);

    const End end = end_of_share(buckets, draw.parameters.top_p * total, draw);
    const double target = draw.uniform * end.sum;
    double before = 0;
    int64_t bucket = 0;
    while (bucket < end.bucket && before + buckets.sums[bucket] <= target) before += buckets.sums[bucket++];
    const int64_t count = bucket < end.bucket ? order(buckets, bucket, draw) : end.count;
    int64_t index = 0;
    while (index < count - 1 && (before += buckets.weights[index]) <= target) ++index;
    return id_of(buckets.keys[index]);
}

}  // namespace penstock
