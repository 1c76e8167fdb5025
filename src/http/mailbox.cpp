#include "http/mailbox.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "http/wakeups.h"

namespace caravan::http {
namespace {

std::size_t bytes_of(const engine::Delta& delta) {
  std::size_t bytes = delta.text.size();
  for (const auto& logprob : delta.logprobs) bytes += sizeof(logprob) + logprob.top.size() * sizeof(logprob.chosen);
  return bytes;
}

void merge(engine::Delta& into, engine::Delta&& from) {
  into.text += from.text;
  into.tokens += from.tokens;
  std::ranges::move(from.logprobs, std::back_inserter(into.logprobs));
}

}  // namespace

Mailbox::Mailbox(std::shared_ptr<Wakeups> wakeups, std::size_t bytes_max)
    : wakeups_(std::move(wakeups)), bytes_max_(bytes_max) {}

engine::Listener Mailbox::listener(std::uint32_t prompt) {
  return [self = shared_from_this(), prompt](engine::Event event) { self->deliver(prompt, std::move(event)); };
}

void Mailbox::deliver(std::uint32_t prompt, engine::Event event) {
  {
    const std::lock_guard lock(mutex_);
    put(prompt, std::move(event));
    if (std::exchange(wake_pending_, true)) return;
  }
  wakeups_->add(shared_from_this());
}

void Mailbox::put(std::uint32_t prompt, engine::Event event) {
  auto* delta = std::get_if<engine::Delta>(&event);
  if (delta == nullptr) {
    mails_.push_back({prompt, std::move(event)});
    return;
  }
  if (overflowed_) return;
  bytes_ += bytes_of(*delta);
  if (bytes_max_ != 0 && bytes_ > bytes_max_) {
    overflowed_ = true;
    mails_.clear();
    return;
  }
  // Nothing but deltas of other choices lies between two deltas of one choice, so merging keeps each choice's order.
  for (Mail& mail : mails_ | std::views::reverse) {
    auto* earlier = std::get_if<engine::Delta>(&mail.event);
    if (earlier == nullptr || mail.prompt != prompt || earlier->choice != delta->choice) continue;
    merge(*earlier, std::move(*delta));
    return;
  }
  mails_.push_back({prompt, std::move(event)});
}

std::vector<Mail> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  bytes_ = 0;
  return std::exchange(mails_, {});
}

bool Mailbox::empty() const {
  const std::lock_guard lock(mutex_);
  return mails_.empty();
}

bool Mailbox::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

void Mailbox::wake() {
  {
    const std::lock_guard lock(mutex_);
    wake_pending_ = false;
  }
  if (on_mail_) on_mail_();
}

}  // namespace caravan::http
