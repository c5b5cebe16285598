// SPDX-License-Identifier: GPL-2.0
#include "remora/metrics.hpp"

#include <fmt/format.h>

namespace remora {

namespace {

std::string escaped(const std::string& text, bool quotes) {
    std::string out;
    for (const char c : text) {
        if (c == '\\' || (quotes && c == '"'))
            out += '\\';
        if (c == '\n')
            out += "\\n";
        else
            out += c;
    }
    return out;
}

std::string labels_text(const Metrics::Labels& labels) {
    std::string text;
    for (const auto& [name, value] : labels)
        text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escaped(value, true));
    return text.empty() ? text : "{" + text + "}";
}

const char* type_text(MetricType type) {
    switch (type) {
    case MetricType::counter:
        return "counter";
    case MetricType::histogram:
        return "histogram";
    case MetricType::gauge:
        break;
    }
    return "gauge";
}

} // namespace

const char* metric_media_type(MetricFormat format) {
    return format == MetricFormat::openmetrics
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

Metrics::Family& Metrics::family(MetricType type, const std::string& name,
                                 const std::string& help) {
    Family*& found = by_name_[name];
    if (!found)
        found = &families_.emplace_back(Family{name, type, help, {}});
    return *found;
}

void Metrics::add(MetricType type, const std::string& name, const std::string& help, Labels labels,
                  double value) {
    family(type, name, help)
        .samples.push_back({type == MetricType::counter ? "_total" : "", std::move(labels), value});
}

void Metrics::add_histogram(const std::string& name, const std::string& help, const Labels& labels,
                            const std::vector<Bucket>& buckets, std::uint64_t all,
                            std::optional<double> sum_seconds) {
    std::vector<Sample>& samples = family(MetricType::histogram, name, help).samples;
    auto add_bucket = [&](const std::string& bound, std::uint64_t count) {
        Labels with_bound = labels;
        with_bound.emplace_back("le", bound);
        samples.push_back({"_bucket", std::move(with_bound), static_cast<double>(count)});
    };
    for (const Bucket& bucket : buckets)
        add_bucket(fmt::format("{}", bucket.up_to_seconds), bucket.count);
    add_bucket("+Inf", all);
    if (!sum_seconds)
        return; // OpenMetrics wants both, or neither
    samples.push_back({"_sum", labels, *sum_seconds});
    samples.push_back({"_count", labels, static_cast<double>(all)});
}

// OpenMetrics names a counter's family without _total; the older format knows no families.
std::string Metrics::text(MetricFormat format) const {
    std::string text;
    for (const Family& family : families_) {
        const bool total = family.type == MetricType::counter && format == MetricFormat::prometheus;
        const std::string name = family.name + (total ? "_total" : "");
        text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name,
                            escaped(family.help, format == MetricFormat::openmetrics), name,
                            type_text(family.type));
        for (const Sample& sample : family.samples)
            text += fmt::format("{}{}{} {}\n", family.name, sample.suffix,
                                labels_text(sample.labels), sample.value);
    }
    if (format == MetricFormat::openmetrics)
        text += "# EOF\n";
    return text;
}

} // namespace remora
