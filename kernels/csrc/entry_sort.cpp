#include "entry_sort.h"

#include <algorithm>
#include <memory>
#include <new>

namespace outcome_rl {

namespace {

struct Entry {
    int64_t question;
    int64_t outcome;
    int64_t count;

    bool operator<(const Entry& other) const {
        return question != other.question ? question < other.question : outcome < other.outcome;
    }
};

}  // namespace

bool sort_entries(int64_t* questions, int64_t* outcomes, int64_t* counts, int64_t n) {
    const std::unique_ptr<Entry[]> entries(new (std::nothrow) Entry[static_cast<size_t>(n)]);
    if (!entries) return false;
    for (int64_t i = 0; i < n; ++i) entries[i] = {questions[i], outcomes[i], counts[i]};
    std::sort(entries.get(), entries.get() + n);
    for (int64_t i = 0; i < n; ++i) {
        questions[i] = entries[i].question;
        outcomes[i] = entries[i].outcome;
        counts[i] = entries[i].count;
    }
    return true;
}

}  // namespace outcome_rl
