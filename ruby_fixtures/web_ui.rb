# frozen_string_literal: true

# Sidekiq's own Web UI without a web server, and a visitor who keeps cookies and presses buttons.

require "rack"
require "sidekiq/web"

class WebUi
  def initialize
    app = Rack::Builder.new do
      use Rack::Session::Cookie, secret: "a secret of the tests, long enough for Rack to take" * 2, same_site: true
      run Sidekiq::Web
    end
    @browser = Rack::MockRequest.new(app.to_app)
    @cookie = ""
  end

  # The page's HTML; a status other than 200 is an error.
  def visit(path)
    answer = remember(@browser.get(path, "HTTP_COOKIE" => @cookie))
    raise "GET #{path}: #{answer.status}\n#{answer.body}" unless answer.status == 200

    answer.body
  end

  # Submit *form* from the page at *path*, as its button would; the status, 302 when all went well.
  def press(path, form, to: path)
    token = visit(path)[/name='authenticity_token' value='([^']+)'/, 1]
    raise "no form on #{path}" unless token

    params = form.merge("authenticity_token" => token)
    remember(@browser.post(to, "HTTP_COOKIE" => @cookie, :params => params)).status
  end

  private

  def remember(answer)
    set = answer["Set-Cookie"]
    @cookie = set.split(";").first if set
    answer
  end
end
