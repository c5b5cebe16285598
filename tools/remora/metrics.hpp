// SPDX-License-Identifier: GPL-2.0
// A set of metrics, and its text in the format of Prometheus or in OpenMetrics.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace remora {

enum class MetricType { counter, gauge, histogram };

// prometheus: version 0.0.4, which node-exporter's textfile collector and promtool read.
enum class MetricFormat { prometheus, openmetrics };

// The media type of an HTTP answer.
const char* metric_media_type(MetricFormat format);

class Metrics {
public:
    using Labels = std::vector<std::pair<std::string, std::string>>;
    struct Bucket {
        double up_to_seconds;
        std::uint64_t count; // of all up to there
    };

    // name: without a counter's _total. help: a sentence.
    void add(MetricType type, const std::string& name, const std::string& help, Labels labels,
             double value);
    // all: of the last bucket, which has no bound. sum_seconds: absent if it isn't known.
    void add_histogram(const std::string& name, const std::string& help, const Labels& labels,
                       const std::vector<Bucket>& buckets, std::uint64_t all,
                       std::optional<double> sum_seconds);

    std::string text(MetricFormat format) const;

private:
    struct Sample {
        std::string suffix; // of the family's name
        Labels labels;
        double value;
    };
    struct Family {
        std::string name;
        MetricType type;
        std::string help;
        std::vector<Sample> samples;
    };
    Family& family(MetricType type, const std::string& name, const std::string& help);

    std::deque<Family> families_; // in the order of their first samples
    std::map<std::string, Family*> by_name_;
};

} // namespace remora
