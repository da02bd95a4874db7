// Keys and values in float16 where tiles multiply bf16: each number is the sum of two of these, exactly, and a number of
// a query or a weight nearly (bf16_pairs.hpp). A product with a key or a value is right to 2^-15 of what its terms add up to in size.
#pragma once
#include "attention_amx.hpp"
#include "bf16_pairs.hpp"

#if defined(__AMX_BF16__)
namespace penstock {

// A stretch taken apart, once for all rows: its numbers as Bf16Format has them, high parts and low ones.
class PairedStretch {
public:
    StretchMemory high, low;

    static int64_t bytes(int64_t head_dim) { return 2 * plane_bytes(head_dim); }
    void carve(uint8_t* memory, int64_t head_dim) {
        memory_ = memory;
        head_dim_ = head_dim;
    }

    // Each vector of keys as [head_dim / 2][lanes][2].
    void take_keys(const StretchMemory& from) {
        high.key_step = low.key_step = kVectorBytes;
        for (int64_t vector = from.first; vector < from.end; ++vector) {
            uint8_t* to = place(high.keys, low.keys, vector);
            const uint8_t* keys = from.keys[vector];
            for (int64_t d = 0; d < head_dim_; d += 2, keys += 2 * from.key_step, to += kVectorBytes) {
                store_pairs_apart(keys, keys + from.key_step, to);
                fetch_to_second(from.after_keys[vector] + d * kLanes * 2, kVectorBytes);
            }
        }
    }

    // The values of whole steps of keys as [keys / 2][head_dim][2]. Beyond the context a block may hold NaN, which no weight
    // of zero takes away: zeros are there.
    void take_values(const StretchMemory& from, Sight whole, int64_t context) {
        high.value_step = low.value_step = head_dim_ * 4;
        for (int64_t vector = whole.first / kLanes; vector < whole.end / kLanes; ++vector) {
            uint8_t* to = place(high.values, low.values, vector);
            const bool is_there = vector >= from.first && vector < from.end;
            const int64_t count = is_there ? std::clamp<int64_t>(context - vector * kLanes, 0, kLanes) : 0;
            for (int64_t key = 0; key < kLanes; key += 2)
                for (int64_t d = 0; d < head_dim_; d += kLanes, to += kVectorBytes) {
                    const uint8_t* first = key < count ? from.values[vector] + key * from.value_step + d * 2 : nullptr;
                    const uint8_t* second = key + 1 < count ? first + from.value_step : nullptr;
                    store_pairs_apart(first, second, to);
                    if (is_there) fetch_to_second(from.after_values[vector] + key * from.value_step + d * 4, kVectorBytes);
                }
        }
    }

private:
    static int64_t plane_bytes(int64_t head_dim) { return kStretch * head_dim * static_cast<int64_t>(sizeof(uint16_t)); }

    uint8_t* place(const uint8_t** high_place, const uint8_t** low_place, int64_t vector) const {
        uint8_t* to = memory_ + vector * kLanes * head_dim_ * sizeof(uint16_t);
        high_place[vector] = to;
        low_place[vector] = to + plane_bytes(head_dim_);
        return to;
    }

    void store_pairs_apart(const uint8_t* first, const uint8_t* second, uint8_t* to) const {
        const auto number = [](const uint8_t* from) {
            return from ? load_fp16(reinterpret_cast<const uint16_t*>(from)) : zero();
        };
        const HighAndLow pairs = apart(number(first), number(second));
        store_bytes(to, pairs.high);
        store_bytes(to + plane_bytes(head_dim_), pairs.low);
    }

    uint8_t* memory_ = nullptr;
    int64_t head_dim_ = 0;
};

}  // namespace penstock
#endif
